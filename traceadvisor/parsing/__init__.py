"""Bytes to model: Chrome traces of every generation, log folders, launch links."""
