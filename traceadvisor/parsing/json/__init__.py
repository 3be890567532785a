"""Bytes to events: windows of JSON, decoded, repaired and counted."""
