#!/usr/bin/env bash
# On the CPU, a product of two small matrices in bfloat16 takes several times as long as in float32; as a batch, less.
#
# Versions: torch 2.13.0 on Python 3.11.7, a processor with AVX-512 (Intel, with AMX), one thread.
# Behaviour: from 32 rows on, `a @ b` of two bfloat16 matrices goes through oneDNN, which takes about 20 us for each
# call however small the matrices are: ten times a float32 product of 32 rows, and longer at 64 rows, too. With 8 rows,
# both types take a microsecond. 40 such products as one batch (`torch.bmm`) take about 1 us each, less than in float32
# at 96 rows. One would expect half as many bits to cost no more, or the single call to cost about a batch of one. An
# optimizer that multiplies the matrices of each layer in bfloat16, as Muon does, spends its time there on a CPU: by
# layers of one shape together, it multiplies several times as fast.
# Output seen:
#     8 rows: bfloat16 takes less than 3 times as long as float32
#     32 rows: bfloat16 takes more than 3 times as long as float32
#     64 rows: bfloat16 takes more than 1.5 times as long as float32
#     32 rows in a batch of 40: at least 5 times as fast as alone
#     64 rows in a batch of 40: at least 3 times as fast as alone
#     96 rows in a batch of 40: faster than float32
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

"${PYTHON:-python3.11}" -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6

cat > "$folder/program.py" <<'PROGRAM'
import sys
import time
from collections.abc import Callable

import torch

if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
    sys.exit("This processor has no AVX-512: torch multiplies bfloat16 without oneDNN here.")
torch.set_num_threads(1)
COUNT = 40


def shortest_s(call: Callable[[], object], times: int) -> float:
    """CPU time of a call, the least of 7 means."""
    call()
    means = []
    for _ in range(7):
        start = time.thread_time()
        for _ in range(times):
            call()
        means.append((time.thread_time() - start) / times)
    return min(means)


def alone_s(rows: int, dtype: torch.dtype) -> float:
    one = torch.randn(rows, rows).to(dtype)
    return shortest_s(lambda: one @ one, 2000)


def in_batch_s(rows: int, dtype: torch.dtype) -> float:
    many = torch.randn(COUNT, rows, rows).to(dtype)
    return shortest_s(lambda: torch.bmm(many, many), 100) / COUNT


def times_as_long(rows: int, limit: float) -> None:
    ratio = alone_s(rows, torch.bfloat16) / alone_s(rows, torch.float32)
    print(f"{rows} rows: bfloat16 takes {'more' if ratio > limit else 'less'} than {limit:g} times as long as float32")


def times_as_fast(rows: int, least: int) -> None:
    ratio = alone_s(rows, torch.bfloat16) / in_batch_s(rows, torch.bfloat16)
    print(f"{rows} rows in a batch of {COUNT}: {'at least' if ratio >= least else 'less than'} {least} times as fast as alone")


times_as_long(8, 3)
times_as_long(32, 3)
times_as_long(64, 1.5)
times_as_fast(32, 5)
times_as_fast(64, 3)
is_faster = in_batch_s(96, torch.bfloat16) < in_batch_s(96, torch.float32)
print(f"96 rows in a batch of {COUNT}: {'faster' if is_faster else 'slower'} than float32")
PROGRAM

cat > "$folder/expected.txt" <<'EXPECTED'
8 rows: bfloat16 takes less than 3 times as long as float32
32 rows: bfloat16 takes more than 3 times as long as float32
64 rows: bfloat16 takes more than 1.5 times as long as float32
32 rows in a batch of 40: at least 5 times as fast as alone
64 rows in a batch of 40: at least 3 times as fast as alone
96 rows in a batch of 40: faster than float32
EXPECTED

"$folder/env/bin/python" "$folder/program.py" 2> "$folder/warnings.txt" > "$folder/output.txt" ||
    { cat "$folder/warnings.txt" >&2; exit 1; }
cat "$folder/output.txt"
if ! diff -u "$folder/expected.txt" "$folder/output.txt"; then
    echo "The behaviour has changed: see the differences above." >&2
    exit 1
fi
echo "The behaviour is as described."
