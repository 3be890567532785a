"""The JSON report: written from `Report`, and described by a schema."""
