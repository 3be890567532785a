"""Forms of the few texts that a copy keeps: what has another form is replaced or left out."""

from __future__ import annotations

import re

_PUBLIC = r"\d{1,6}(?:\.\d{1,9}){0,4}(?:\.?(?:a|b|rc|dev|post)\d{1,9}){0,3}"
_LOCAL = r"(?:\+|-)(?:(?:cpu|xpu|cu\d{2,4}|rocm[\d.]{1,12}|git[0-9a-f]{5,40}|[0-9a-f]{5,40}|nv[\d.]{1,12})[.]?){1,3}"
_VERSION = re.compile(rf"({_PUBLIC})(?:({_LOCAL})|[+-][\w.+-]{{0,60}})?")
_NUMBER_TYPE = re.compile(r"(?:torch\.)?(?:bfloat16|float\d{1,2}|float8_e\dm\d\w{0,4}|half|float|double)")
_CODE_NAME = re.compile(r"(?:[^\W\d]\w{0,200}|<[a-z]{1,20}>)(?:\.(?:[^\W\d]\w{0,200}|<[a-z]{1,20}>)){0,20}")
_SWITCH = re.compile(r"[01]|true|false|on|off|yes|no", re.IGNORECASE)
_VALUE = r"(?:\d{1,9}(?:\.\d{1,9})?|True|False|true|false|native|cudaMallocAsync|hipMallocAsync)"
_OPTION = rf"[a-z][a-z0-9_]{{0,60}}:(?:{_VALUE}|\[[\d>.,: ]{{0,200}}\])"
_ALLOCATOR = re.compile(rf"{_OPTION}(?:,\s?{_OPTION}){{0,20}},?")
_ENVIRONMENT = {
    "CUDA_LAUNCH_BLOCKING": _SWITCH,
    "OMP_NUM_THREADS": re.compile(r"\d{1,6}(?:,\d{1,6}){0,8}"),
    "PYTORCH_ALLOC_CONF": _ALLOCATOR,
    "PYTORCH_CUDA_ALLOC_CONF": _ALLOCATOR,
    "PYTORCH_NO_CUDA_MEMORY_CACHING": _SWITCH,
    "TORCH_DISTRIBUTED_DEBUG": re.compile(r"off|info|detail", re.IGNORECASE),
}


def is_usual(variable: str, value: object) -> bool:
    """Whether a value of a recorded environment variable has the form that PyTorch or OpenMP reads."""
    form = _ENVIRONMENT.get(variable)
    return form is not None and isinstance(value, str) and form.fullmatch(value) is not None


def version_in(value: object) -> str | None:
    """A version, without the name of a build that is not of PyTorch's own; None for another text."""
    found = _VERSION.fullmatch(value) if isinstance(value, str) else None
    return found and f"{found[1]}{found[2] or ''}"


def is_number_type(text: str) -> bool:
    """Whether a text is the name of a type of numbers with a fraction."""
    return _NUMBER_TYPE.fullmatch(text) is not None


def is_code_name(text: str) -> bool:
    """Whether a text can be the name of a class, a function or a module."""
    return _CODE_NAME.fullmatch(text) is not None
