"""Cleans untrusted text of control characters, secrets and home directories before it is shown."""
