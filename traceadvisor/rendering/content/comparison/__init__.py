"""The document on a comparison of two sides."""
