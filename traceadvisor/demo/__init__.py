"""A small training with deliberate faults, as a first example of a capture and its report."""
