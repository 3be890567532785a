"""Rules on getting the next batch."""
