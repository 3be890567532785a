"""Runs a command and prints what it took: ``launcher.py COMMAND...``; the command's own output is thrown away.

Prints the exit code, wall, user and system seconds, and the peak of ``getrusage``. A small process of its own, because
the system counts into a child's peak memory that of the process which started it.
"""

import os
import sys
import time

command = sys.argv[1:]
quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
begin = time.perf_counter()
process = os.posix_spawnp(command[0], command, os.environ, file_actions=quiet)
_, status, usage = os.wait4(process, 0)
wall_s = time.perf_counter() - begin
sys.stdout.write(f"{os.waitstatus_to_exitcode(status)} {wall_s} {usage.ru_utime} {usage.ru_stime} {usage.ru_maxrss}")
