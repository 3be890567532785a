"""Model to numbers: pure functions without input or output of their own."""
