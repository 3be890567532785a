"""Rules on a device that has nothing to do."""
