"""Training scripts with known truths."""
