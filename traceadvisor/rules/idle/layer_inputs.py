"""How many samples layers get at once, from the shapes of their operators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

import numpy as np

from traceadvisor.analysis.operators.inputs import read_inputs
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE
from traceadvisor.model.trace import Trace

_CONVOLUTIONS = frozenset({"aten::conv1d", "aten::conv2d", "aten::conv3d", "aten::convolution"})

LAYERS: Mapping[str, int] = {"aten::linear": 0, "aten::addmm": 1} | dict.fromkeys(_CONVOLUTIONS, 0)
"""Operators of layers, with the position of their input."""


def layer_inputs(trace: Trace, rows: Int64) -> Iterator[tuple[int, int]]:
    """Yield those of some rows that call a layer with a recorded shape, each with its number of inputs.

    That is the number of pictures of a convolution, and of rows of a matrix product: a position of a sample is a row.
    """
    known: dict[tuple[int, int], int] = {}
    names, dims = trace.events.name_id[rows], trace.details.dims_id.at(rows, np.int32(NONE))
    for row, name, text in zip(rows.tolist(), names.tolist(), dims.tolist(), strict=True):
        if text == NONE or (position := LAYERS.get(trace.names[name])) is None:
            continue
        if (name, text) not in known:
            shape = read_inputs(trace.texts[text], "", "").shape(position)
            is_convolution = trace.names[name] in _CONVOLUTIONS
            known[name, text] = (shape[0] if is_convolution else prod(shape[:-1])) if shape else 0
        if known[name, text]:
            yield row, known[name, text]
