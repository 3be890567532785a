#!/usr/bin/env bash
# With stacks, the event of an optimizer's step in PyTorch's tree of events holds none of the step's operators.
#
# Versions: Python 3.11, torch 2.13.0 (CPU), numpy 2.4.6.
# Behaviour: `kineto_results.experimental_event_tree()` gives the events of a recording as a tree. Without stacks, the
# operators that SGD runs are below its event `Optimizer.step#SGD.step`. With `with_stack=True`, the same operators have
# only Python calls above them, and the event has no operator below it. Its begin and end are around theirs in both.
# One would expect that stacks add events to the tree, and take no operator out of an event around it.
# Output seen:
#     without stacks: operators of the step 2, below the optimizer's event 2, within its time 2
#     with stacks: operators of the step 2, below the optimizer's event 0, within its time 2
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6

cat > "$folder/program.py" <<'PROGRAM'
import torch
from torch.profiler import ProfilerActivity, profile

EVENT = "Optimizer.step#SGD.step"


def events(roots):
    """All events of a tree, each with those above it."""
    todo = [(root, ()) for root in roots]
    while todo:
        event, above = todo.pop()
        yield event, above
        todo.extend((child, (*above, event)) for child in event.children)


def record(with_stack):
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    model(torch.ones(2, 4)).sum().backward()
    with profile(activities=[ProfilerActivity.CPU], with_stack=with_stack) as profiler:
        optimizer.step()
    found = list(events(profiler.profiler.kineto_results.experimental_event_tree()))
    (step,) = [event for event, _ in found if event.name == EVENT]
    updates = [(event, above) for event, above in found if event.name == "aten::add_"]
    below = sum(any(one.name == EVENT for one in above) for _, above in updates)
    begin, end = step.start_time_ns, step.end_time_ns
    within = sum(begin <= event.start_time_ns and event.end_time_ns <= end for event, _ in updates)
    return f"operators of the step {len(updates)}, below the optimizer's event {below}, within its time {within}"


print("without stacks:", record(False))
print("with stacks:", record(True))
PROGRAM

cat > "$folder/expected.txt" <<'EXPECTED'
without stacks: operators of the step 2, below the optimizer's event 2, within its time 2
with stacks: operators of the step 2, below the optimizer's event 0, within its time 2
EXPECTED

"$folder/venv/bin/python" "$folder/program.py" 2> "$folder/errors.txt" > "$folder/output.txt" || {
    cat "$folder/errors.txt" >&2
    exit 1
}
cat "$folder/output.txt"
if ! diff -u "$folder/expected.txt" "$folder/output.txt"; then
    echo "The behaviour has changed: see the differences above." >&2
    exit 1
fi
echo "The behaviour is as described."
