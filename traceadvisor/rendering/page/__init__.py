"""The report as a page: HTML, and the PDF made from it."""
