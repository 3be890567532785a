"""Rules on moving data to the device."""
