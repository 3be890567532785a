#!/usr/bin/env bash
# torch's own helpers refuse the sparse gradients that torch's own embedding makes, although a norm of them exists.
#
# Versions: torch 2.13.0 on Python 3.11.7.
# Behaviour: `nn.Embedding(sparse=True)` makes sparse gradients, and SGD and Adagrad take them. `clip_grad_norm_` and
# `clip_grad_value_` raise NotImplementedError for them, also with `foreach=False`, where the loop over parameters could
# ask each gradient for its norm: `gradient.norm()` gives the right one, equal to that of the dense gradient. The two
# optimizers take sparse gradients until an option that is on by habit is set: `weight_decay` or `fused` ends the first
# step with an error. One would expect the option of a layer to work with the helpers of the same library, or its
# documentation to say with which. So `sparse=True` alone can end a training that clips its gradients or decays weights.
# Output seen:
#     clip_grad_norm_: NotImplementedError
#     clip_grad_norm_, one by one: NotImplementedError
#     clip_grad_value_: NotImplementedError
#     norm of the gradient: as of the dense one
#     SGD: took a step
#     SGD with momentum: took a step
#     SGD with weight_decay: RuntimeError
#     SGD, fused: RuntimeError
#     Adagrad: took a step
#     Adagrad with weight_decay: RuntimeError
#     Adagrad, fused: RuntimeError
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

"${PYTHON:-python3.11}" -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6

cat > "$folder/program.py" <<'PROGRAM'
from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
from torch.optim import SGD, Adagrad


def table() -> nn.Embedding:
    """An embedding table with a sparse gradient: three lookups, one row twice."""
    torch.manual_seed(0)
    made = nn.Embedding(100, 8, sparse=True)
    made(torch.tensor([1, 1, 5])).sum().backward()
    return made


def outcome(title: str, call: Callable[[nn.Embedding], object]) -> None:
    """Print what a call on the table does."""
    try:
        call(table())
    except (NotImplementedError, RuntimeError) as error:
        print(f"{title}: {type(error).__name__}")
    else:
        print(f"{title}: took a step" if "clip" not in title else f"{title}: clipped")


outcome("clip_grad_norm_", lambda made: clip_grad_norm_(made.parameters(), 1.0))
outcome("clip_grad_norm_, one by one", lambda made: clip_grad_norm_(made.parameters(), 1.0, foreach=False))
outcome("clip_grad_value_", lambda made: clip_grad_value_(made.parameters(), 0.1))
gradient = table().weight.grad
same = torch.equal(gradient.norm(), gradient.to_dense().norm())
print(f"norm of the gradient: {'as of the dense one' if same else 'another one'}")


def stepped(made: nn.Embedding, kind: type[torch.optim.Optimizer], **options: object) -> None:
    """Let an optimizer of this kind update the table once."""
    kind(made.parameters(), lr=0.1, **options).step()


outcome("SGD", partial(stepped, kind=SGD))
outcome("SGD with momentum", partial(stepped, kind=SGD, momentum=0.9))
outcome("SGD with weight_decay", partial(stepped, kind=SGD, weight_decay=0.1))
outcome("SGD, fused", partial(stepped, kind=SGD, fused=True))
outcome("Adagrad", partial(stepped, kind=Adagrad))
outcome("Adagrad with weight_decay", partial(stepped, kind=Adagrad, weight_decay=0.1))
outcome("Adagrad, fused", partial(stepped, kind=Adagrad, fused=True))
PROGRAM

cat > "$folder/expected.txt" <<'EXPECTED'
clip_grad_norm_: NotImplementedError
clip_grad_norm_, one by one: NotImplementedError
clip_grad_value_: NotImplementedError
norm of the gradient: as of the dense one
SGD: took a step
SGD with momentum: took a step
SGD with weight_decay: RuntimeError
SGD, fused: RuntimeError
Adagrad: took a step
Adagrad with weight_decay: RuntimeError
Adagrad, fused: RuntimeError
EXPECTED

"$folder/env/bin/python" "$folder/program.py" 2> "$folder/warnings.txt" > "$folder/output.txt"
cat "$folder/output.txt"
if ! diff -u "$folder/expected.txt" "$folder/output.txt"; then
    echo "The behaviour has changed: see the differences above." >&2
    exit 1
fi
echo "The behaviour is as described."
