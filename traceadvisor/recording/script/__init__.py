"""The user's program: run as it is, with its exit code and signals kept."""
