"""The user's script: run unchanged, with its exit code and signals."""
