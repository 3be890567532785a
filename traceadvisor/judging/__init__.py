"""Judges trace files: runs the rules on their facts, then folds and ranks the findings."""
