"""Results of `try` and `sweep`."""
