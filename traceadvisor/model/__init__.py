"""The vocabulary of the package: frozen dataclasses and span sets; numpy only."""
