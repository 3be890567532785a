"""The answer about another GPU or batch, as a document."""
