#!/usr/bin/env bash
# `torch.set_default_device`, even with the device that is the default, turns off the fast path of transformer layers.
#
# Versions: torch 2.13.0 on Python 3.11.7.
# Behaviour: in inference, `torch.nn.TransformerEncoderLayer` computes the whole layer in one operator,
# `aten::_transformer_encoder_layer_fwd`. It does not if a mode of `__torch_function__` is active, and both
# `with torch.device(...)` and `torch.set_default_device(...)` set one. So a line at the start of a program that
# decides where new tensors lie also decides, without a warning, which operators a layer runs later. The results are the
# same. One would expect the choice of a device, above all of the one that is the default, to change no operators.
# Output seen:
#     as it is: one operator
#     within torch.device("cpu"): many operators
#     after torch.set_default_device("cpu"): many operators
#     after torch.set_default_device(None): one operator
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

"${PYTHON:-python3.11}" -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6

cat > "$folder/program.py" <<'PROGRAM'
import torch
from torch.profiler import ProfilerActivity, profile

torch.set_num_threads(1)
layer = torch.nn.TransformerEncoderLayer(d_model=16, nhead=2, dim_feedforward=32, batch_first=True).eval()
batch = torch.ones(2, 4, 16)


def path() -> str:
    with torch.inference_mode(), profile(activities=[ProfilerActivity.CPU]) as recorded:
        layer(batch)
    names = {event.name for event in recorded.events()}
    return "one operator" if "aten::_transformer_encoder_layer_fwd" in names else "many operators"


print("as it is:", path())
with torch.device("cpu"):
    print('within torch.device("cpu"):', path())
torch.set_default_device("cpu")
print('after torch.set_default_device("cpu"):', path())
torch.set_default_device(None)
print("after torch.set_default_device(None):", path())
PROGRAM

cat > "$folder/expected.txt" <<'EXPECTED'
as it is: one operator
within torch.device("cpu"): many operators
after torch.set_default_device("cpu"): many operators
after torch.set_default_device(None): one operator
EXPECTED

"$folder/env/bin/python" "$folder/program.py" > "$folder/output.txt"
cat "$folder/output.txt"
if ! diff -u "$folder/expected.txt" "$folder/output.txt"; then
    echo "The behaviour has changed: see the differences above." >&2
    exit 1
fi
echo "The behaviour is as described."
