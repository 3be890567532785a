"""``python -m traceadvisor``."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # Python looks for modules in the working directory first; that may be the folder of somebody's recordings.
    # The folder of the interpreter takes its place, as when the command is run by its own name.
    first = () if sys.flags.safe_path else (str(Path(sys.executable).parent),)
    sys.path[:] = [*first, *(place for place in sys.path if place and Path(place) != Path.cwd())]

    from traceadvisor.cli import main

    main()
