"""What is known of devices beyond what a trace says of them."""
