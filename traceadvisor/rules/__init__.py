"""Facts to findings: one rule a file, named for what it looks at. ``base.py`` holds what all of them share."""
