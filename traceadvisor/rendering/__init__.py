"""Renders a report as HTML, PDF, Markdown and terminal summary. Depends on the model only."""
