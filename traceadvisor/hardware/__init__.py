"""Published figures of devices."""
