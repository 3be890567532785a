#!/usr/bin/env bash
# Since Python 3.12, cProfile takes the calls of all threads for those of one.
#
# Versions: Python 3.12.1, 3.13.0 and 3.14.8; not 3.11.7.
# Behaviour: a `cProfile.Profile` is enabled in the main thread, as documented. Up to Python 3.11 it sees this thread
# only. Since 3.12 it is built on `sys.monitoring`, which reports events of all threads, and it keeps one stack for all
# of them. A return in one thread then ends a call of another: a function that is not recursive is counted as
# recursive (`primitive calls` below the calls), and its cumulative time is lost. One would expect the profile of one
# thread, or of each thread by itself.
# Output seen:
#     alone: work: 100 calls, 100 primitive, cumulative time right
#     beside a thread: work: fewer than half of the calls primitive, cumulative time lost
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cat > "$folder/program.py" <<'PROGRAM'
import cProfile
import threading
import time


def work():
    wait()


def wait():
    time.sleep(0.001)


def tick():
    time.sleep(0.0003)


def others(stop):
    while not stop.is_set():
        tick()


def profiled(beside):
    stop = threading.Event()
    thread = threading.Thread(target=others, args=(stop,))
    if beside:
        thread.start()
    profile = cProfile.Profile()
    for _ in range(100):
        profile.enable()
        work()
        profile.disable()
    stop.set()
    if beside:
        thread.join()
    profile.create_stats()
    return {name: row for (_, _, name), row in profile.stats.items()}["work"]


primitive, calls, _, cumulative, _ = profiled(False)
print(f"alone: work: {calls} calls, {primitive} primitive, cumulative time {'right' if cumulative > 0.1 else 'lost'}")
primitive, calls, _, cumulative, _ = profiled(True)
few = "fewer than half of the calls primitive" if primitive < calls / 2 else f"{primitive} of {calls} calls primitive"
print(f"beside a thread: work: {few}, cumulative time {'right' if cumulative > 0.1 else 'lost'}")
PROGRAM

cat > "$folder/expected.txt" <<'EXPECTED'
alone: work: 100 calls, 100 primitive, cumulative time right
beside a thread: work: fewer than half of the calls primitive, cumulative time lost
EXPECTED

"${PYTHON:-python3.12}" "$folder/program.py" > "$folder/output.txt"
cat "$folder/output.txt"
if ! diff -u "$folder/expected.txt" "$folder/output.txt"; then
    echo "The behaviour has changed: see the differences above." >&2
    exit 1
fi
echo "The behaviour is as described."
