#!/usr/bin/env bash
# Each step of AdamW raises an audit event for every parameter, SGD none.
#
# Versions: torch 2.13.0 on Python 3.11.7.
# Behaviour: Python's `id` raises the audit event `builtins.id`. Adam and AdamW call it once for each parameter in
# `step`, also where `fused=True` makes one kernel of them. A program with an audit hook (PEP 578) written in Python,
# such as a tracer or a sandbox, then runs it as often as the model has parameters, in every step. One would expect the
# cost of such a hook to lie where files, processes and sockets are opened, and a training step to raise no event.
# Output seen:
#     SGD: 0 events for 20 parameters
#     AdamW: 20 events for 20 parameters, builtins.id
#     AdamW, fused: 20 events for 20 parameters, builtins.id
#     forward and backward pass: 0 events
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

"${PYTHON:-python3.11}" -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6

cat > "$folder/program.py" <<'PROGRAM'
import sys
from collections import Counter

import torch

events = Counter()
parameters = [torch.nn.Parameter(torch.ones(4)) for _ in range(20)]
for parameter in parameters:
    parameter.grad = torch.ones_like(parameter)
optimizers = {
    "SGD": torch.optim.SGD(parameters, lr=0.1),
    "AdamW": torch.optim.AdamW(parameters, lr=0.1),
    "AdamW, fused": torch.optim.AdamW(parameters, lr=0.1, fused=True),
}
model = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(10)))
for optimizer in optimizers.values():
    optimizer.step()  # makes its state
model(torch.ones(2, 4)).sum().backward()
sys.addaudithook(lambda name, _: events.update((name,)))
for name, optimizer in optimizers.items():
    events.clear()
    optimizer.step()
    seen = dict(events)
    kinds = "".join(f", {kind}" for kind in seen)
    print(f"{name}: {sum(seen.values())} events for {len(parameters)} parameters{kinds}")
events.clear()
model(torch.ones(2, 4)).sum().backward()
print(f"forward and backward pass: {sum(events.values())} events")
PROGRAM

cat > "$folder/expected.txt" <<'EXPECTED'
SGD: 0 events for 20 parameters
AdamW: 20 events for 20 parameters, builtins.id
AdamW, fused: 20 events for 20 parameters, builtins.id
forward and backward pass: 0 events
EXPECTED

"$folder/env/bin/python" "$folder/program.py" > "$folder/output.txt"
cat "$folder/output.txt"
if ! diff -u "$folder/expected.txt" "$folder/output.txt"; then
    echo "The behaviour has changed: see the differences above." >&2
    exit 1
fi
echo "The behaviour is as described."
