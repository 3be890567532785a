"""A report in words and pictures: HTML, PDF, Markdown, JSON. Sees the model only."""
