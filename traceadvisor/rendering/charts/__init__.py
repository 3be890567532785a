"""Charts as plain shapes, which the templates turn into inline SVG."""
