"""Where time comes from: operators, modules and Python stacks."""
