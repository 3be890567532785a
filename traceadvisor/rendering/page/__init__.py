"""The report as an HTML page, and as a PDF of that page."""
