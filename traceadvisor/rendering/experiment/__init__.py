"""The result of an experiment as text, Markdown, HTML and PDF."""
