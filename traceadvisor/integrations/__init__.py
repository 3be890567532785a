"""Plugins for the tools that people already use."""
