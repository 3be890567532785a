#!/usr/bin/env bash
# When the gradient of a parameter arrives depends on the order of two forward passes, not on how far it is from the loss.
#
# Versions: Python 3.11, torch 2.13.0 (CPU).
# Behaviour: a discriminator sees real samples and those of a generator, and one `backward()` of the sum of both losses
# computes all gradients. `register_post_accumulate_grad_hook` tells when each is there. If the real samples went through
# first, the discriminator's gradients come after the generator's, although the generator lies behind it: torch runs the
# nodes that were made last first, and the discriminator waits for the part of its gradient that was made first. With
# the generated samples first, it is the other way round. The gradients are equal.
# One would expect that gradients of the layers next to the loss are there first, as with one forward pass; what waits for
# them, such as buckets of a reduction, or a measurement of unused gradients by their arrival, depends on it.
# Output seen:
#     real first: generator, discriminator
#     generated first: discriminator, generator
#     equal gradients: True
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cat > "$folder/program.py" <<'PROGRAM'
import torch

torch.manual_seed(0)
generator, discriminator = torch.nn.Linear(4, 3, bias=False), torch.nn.Linear(3, 1, bias=False)
real, noise = torch.randn(8, 3), torch.randn(8, 4)
arrived = []
for name, module in (("generator", generator), ("discriminator", discriminator)):
    module.weight.register_post_accumulate_grad_hook(lambda _, name=name: arrived.append(name))


def gradients(passes):
    arrived.clear()
    generator.zero_grad()
    discriminator.zero_grad()
    sum(one() for one in passes).backward()
    return [module.weight.grad.clone() for module in (generator, discriminator)]


def of_real():
    return discriminator(real).sum()


def of_generated():
    return discriminator(generator(noise)).sum()


first = gradients([of_real, of_generated])
print("real first:", ", ".join(arrived))
second = gradients([of_generated, of_real])
print("generated first:", ", ".join(arrived))
print("equal gradients:", all(torch.allclose(*pair) for pair in zip(first, second)))
PROGRAM

cat > "$folder/expected.txt" <<'EXPECTED'
real first: generator, discriminator
generated first: discriminator, generator
equal gradients: True
EXPECTED

"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 numpy
"$folder/venv/bin/python" "$folder/program.py" > "$folder/output.txt"
cat "$folder/output.txt"
if ! diff -u "$folder/expected.txt" "$folder/output.txt"; then
    echo "The behaviour has changed: see the differences above." >&2
    exit 1
fi
echo "The behaviour is as described."
