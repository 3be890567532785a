"""Memory snapshots in words, tables and charts."""
