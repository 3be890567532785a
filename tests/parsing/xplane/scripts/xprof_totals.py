"""Print what xprof reads of a profile: events that take time and their nanoseconds, by line of the host."""

from __future__ import annotations

import json
import sys

from xprof.profile_data import ProfileData

totals = []
for plane in ProfileData.from_file(sys.argv[1]).planes:
    for line in plane.lines if plane.name == "/host:CPU" else ():
        timed = [event.duration_ns for event in line.events if event.duration_ns > 0]
        totals.append([line.name, len(timed), sum(timed)])
print(json.dumps(sorted(totals)))
