"""Rules for memory."""
