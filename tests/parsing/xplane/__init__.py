"""Profiles by XLA: real small ones, which ``scripts/`` made with jax 0.10.2 and tensorflow-cpu 2.21 on two cores."""
