"""``python -m traceadvisor``."""

import sys
from contextlib import suppress
from pathlib import Path

if __name__ == "__main__":
    # Python searches the working directory first, which may be a folder of untrusted recordings.
    # The interpreter's folder takes its place, as when the command is run by its own name.
    first = () if sys.flags.safe_path else (str(Path(sys.executable).parent),)
    here: Path | None = None
    with suppress(OSError):  # it was removed; the command line says so
        here = Path.cwd()
    sys.path[:] = [*first, *(place for place in sys.path if place and Path(place) != here)]

    from traceadvisor.cli import main

    main()
