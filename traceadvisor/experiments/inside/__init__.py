"""What runs inside the training process of an experiment."""
