"""What another GPU or batch would change, as a document."""
