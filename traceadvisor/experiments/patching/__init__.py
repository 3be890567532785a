"""Changes of the user's code: as a patch that was measured, or measured from a patch."""
