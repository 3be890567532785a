"""A training by TensorFlow whose tf.data makes batches too slowly; its profile goes into the folder of the argument.

The second argument is ``loop`` for a loop that marks its steps, or ``fit`` for ``Model.fit`` of Keras.
"""

from __future__ import annotations

import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import tensorflow as tf

FOLDER, KIND = sys.argv[1:]


def slow(batch):
    """Sort as much as takes some 20 ms; a Python function here would make the profiler wait for ever."""
    waste = tf.reduce_sum(tf.sort(tf.random.uniform([300_000])))
    return batch + 0 * waste


def rows(count):
    return tf.data.Dataset.from_tensors(tf.ones([64, 64])).repeat(count)


def loop():
    weights = tf.Variable(tf.random.normal((64, 64)))

    @tf.function
    def step(batch):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.tanh(batch @ weights) ** 2)
        weights.assign_sub(0.1 * tape.gradient(loss, weights))
        return loss

    batches = iter(rows(9).map(slow))
    step(next(batches))
    tf.profiler.experimental.start(FOLDER)
    for number in range(8):
        with tf.profiler.experimental.Trace("train", step_num=number, _r=1):
            step(next(batches))
    tf.profiler.experimental.stop()


def fit():
    model = keras.Sequential([keras.layers.Input((64,)), keras.layers.Dense(64), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    pairs = rows(24).map(slow).map(lambda batch: (batch, batch[:, :1]))
    model.fit(pairs, verbose=0, callbacks=[keras.callbacks.TensorBoard(FOLDER, profile_batch=(10, 20))])


{"loop": loop, "fit": fit}[KIND]()
