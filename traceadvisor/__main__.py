"""``python -m traceadvisor``."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # Python looks for modules in the working directory first; that may be the folder of somebody's recordings.
    sys.path[:] = [place for place in sys.path if place and Path(place) != Path.cwd()]

    from traceadvisor.cli import main

    main()
