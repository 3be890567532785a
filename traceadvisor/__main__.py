"""``python -m traceadvisor``."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # Python searches the working directory first, which may be a folder of untrusted recordings.
    sys.path[:] = [place for place in sys.path if place and Path(place) != Path.cwd()]

    from traceadvisor.cli import main

    main()
