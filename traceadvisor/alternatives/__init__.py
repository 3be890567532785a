"""What another GPU, batch, number of ranks or loader workers would change, from simulations of recorded steps."""
