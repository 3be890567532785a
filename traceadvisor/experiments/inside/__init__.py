"""The part of an experiment that runs inside the training process."""
