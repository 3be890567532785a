"""A small training with planted faults, for a first look at what a capture and its report say."""
