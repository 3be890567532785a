"""Rules on several devices."""
