"""FLOPs, precision and rates of the work that the device did."""
