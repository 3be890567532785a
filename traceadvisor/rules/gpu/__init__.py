"""Rules on work that runs slower than it need."""
