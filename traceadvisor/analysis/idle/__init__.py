"""Why the device was idle."""
