"""Rules on the machine itself."""
