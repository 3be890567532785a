"""Rules on the hardware."""
