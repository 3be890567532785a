"""Rules, which turn facts into findings: one rule per file. ``base.py`` contains what all of them share."""
