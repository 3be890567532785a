"""Events laid out as columns, one numpy array per property."""
