"""Pictures of the breakdown as plain shapes; the templates turn them into inline SVG."""
