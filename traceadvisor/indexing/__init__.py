"""The runs below some folders, and pages about them that were made before."""
