"""The Advisor tab of TensorBoard."""
