"""Steps on another GPU, with another batch, more ranks or other loader workers, from simulations of recorded steps."""
