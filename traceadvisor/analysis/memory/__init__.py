"""Device memory: capacity, peaks, and what fills it."""
