"""Text from strangers: control characters, secrets and home directories are removed before anyone sees it."""
