"""Measurements for one short visit to a machine with a GPU: parts that run alone, and their results.

See README.md in this folder.
"""
