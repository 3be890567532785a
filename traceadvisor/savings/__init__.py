"""Savings: what a fix would take off the step, as an interval from simulations of the recorded steps."""
