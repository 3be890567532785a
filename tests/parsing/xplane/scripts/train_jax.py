"""A training by JAX whose batches take most of each step; its profile goes into the folder of the first argument.

The second argument says what the profile tells of it: ``annotated`` marks steps and input, ``plain`` neither, and
``unnamed`` has a name for its input that says nothing.
"""

from __future__ import annotations

import contextlib
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

FOLDER, KIND = sys.argv[1:]


def load(number):
    time.sleep(0.02)
    return np.full((64, 128), number, "float32")


def stage_two(number):
    time.sleep(0.02)
    return np.full((64, 128), number, "float32")


@jax.jit
def step(weights, batch):
    loss, gradient = jax.value_and_grad(lambda w: jnp.mean((jnp.tanh(batch @ w) - 1) ** 2))(weights)
    return weights - 0.1 * gradient, loss


def mark(number):
    if KIND != "annotated":
        return contextlib.nullcontext()
    return jax.profiler.StepTraceAnnotation("train", step_num=number)


def batch_of(number):
    if KIND == "unnamed":
        return stage_two(number)
    if KIND == "plain":
        return load(number)
    with jax.profiler.TraceAnnotation("load_batch"):
        return load(number)


weights, _ = step(jnp.ones((128, 128)), batch_of(0))
with jax.profiler.trace(FOLDER):
    for number in range(8):
        with mark(number):
            weights, loss = step(weights, batch_of(number))
            loss.block_until_ready()
