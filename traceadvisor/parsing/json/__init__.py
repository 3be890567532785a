"""Bytes to events: chunks of JSON, decoded, repaired and counted."""
