"""The report as Markdown, for a pull request comment."""
