"""``python -m traceadvisor``."""

from traceadvisor.cli import main

if __name__ == "__main__":
    main()
