#!/usr/bin/env bash
# The profiler records neither words nor tensors that index: calls that compute different results leave the same event.
#
# Versions: torch 2.13.0 on Python 3.11.7.
# Behaviour: with `record_shapes=True`, an event holds the shapes, number types and constants of an operator's inputs.
# Numbers and lists of numbers are recorded with their values, and lists of tensors with their shapes. A word (the
# equation of `einsum`, the rounding of `div`, the approximation of `gelu`) is recorded as an empty text of no type, and
# so is the list of tensors and gaps by which `x[:, i]` indexes. So two einsums of which one transposes an input, and
# rows and columns that are gathered, have equal events. One would expect a recording with shapes to tell the work of
# these calls apart, or to say that it left something out. Who counts operations from the inputs cannot count these.
# Output seen:
#     a matrix product, and one with the second matrix transposed: the same inputs
#     rows, and columns by an index: the same inputs
#     rounding down, and towards zero: the same inputs
#     a softmax over rows, and over columns: other inputs
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

"${PYTHON:-python3.11}" -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6

cat > "$folder/program.py" <<'PROGRAM'
import json
import os
import sys
from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

x, y = torch.arange(64.0).reshape(8, 8) - 31.5, torch.arange(64.0).reshape(8, 8) + 0.5
index = torch.tensor([2, 5])


def computed(call: Callable[[], torch.Tensor], operator: str) -> tuple[torch.Tensor, dict[str, object]]:
    """The result of a call, and what its operator's event holds of its inputs."""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        result = call()
    path = os.path.join(sys.argv[1], "trace.json")
    recorded.export_chrome_trace(path)
    with open(path) as file:
        events = json.load(file)["traceEvents"]
    inputs = next(event["args"] for event in events if event.get("name") == operator)
    return result, {key: value for key, value in inputs.items() if "Input" in key}


def compare(title: str, operator: str, first: Callable[[], torch.Tensor], second: Callable[[], torch.Tensor]) -> None:
    """Print whether two calls with different results leave the same inputs."""
    (one, of_one), (other, of_other) = computed(first, operator), computed(second, operator)
    assert one.shape != other.shape or not torch.equal(one, other)
    print(f"{title}: {'the same' if of_one == of_other else 'other'} inputs")


compare(
    "a matrix product, and one with the second matrix transposed",
    "aten::einsum",
    lambda: torch.einsum("ij,jk->ik", x, y),
    lambda: torch.einsum("ij,kj->ik", x, y),
)
compare("rows, and columns by an index", "aten::index", lambda: x[index], lambda: x[:, index])
compare(
    "rounding down, and towards zero",
    "aten::div",
    lambda: torch.div(x, y, rounding_mode="floor"),
    lambda: torch.div(x, y, rounding_mode="trunc"),
)
compare("a softmax over rows, and over columns", "aten::softmax", lambda: x.softmax(0), lambda: x.softmax(1))
PROGRAM

cat > "$folder/expected.txt" <<'EXPECTED'
a matrix product, and one with the second matrix transposed: the same inputs
rows, and columns by an index: the same inputs
rounding down, and towards zero: the same inputs
a softmax over rows, and over columns: other inputs
EXPECTED

"$folder/env/bin/python" "$folder/program.py" "$folder" > "$folder/output.txt"
cat "$folder/output.txt"
if ! diff -u "$folder/expected.txt" "$folder/output.txt"; then
    echo "The behaviour has changed: see the differences above." >&2
    exit 1
fi
echo "The behaviour is as described."
