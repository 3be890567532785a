"""The torch versions that have what fixes propose: functions, settings and arguments, with sources.

Versions before 1.13 are not told apart where a name is older than that. A recording by ``traceadvisor capture`` holds
its torch version; other recordings do not.
"""

from __future__ import annotations

import re
from functools import lru_cache

from traceadvisor.frozen import frozen

Version = tuple[int, int]

OLDEST: Version = (1, 13)
"""Oldest version that the table tells apart."""

_DOCS = "https://docs.pytorch.org/docs"
_NOTES = "https://github.com/pytorch/pytorch/releases/tag"


@frozen
class Api:
    """One name that fixes use."""

    name: str
    """As code writes it; for an argument, ``function(argument=)``."""

    pattern: str
    """Regular expression that finds its use in a change."""

    since: Version
    """First version that has it; :data:`OLDEST` also stands for older ones."""

    source: str


_OLD = (
    "torch.autograd.grad",
    "torch.autograd.set_detect_anomaly",
    "torch.bfloat16",
    "torch.cat",
    "torch.cuda.Stream",
    "torch.cuda.current_stream",
    "torch.cuda.set_sync_debug_mode",
    "torch.cuda.stream",
    "torch.distributed.all_reduce",
    "torch.distributed.all_to_all_single",
    "torch.distributed.fsdp.BackwardPrefetch.BACKWARD_PRE",
    "torch.distributed.fsdp.FullyShardedDataParallel",
    "torch.distributed.fsdp.ShardingStrategy.SHARD_GRAD_OP",
    "torch.distributed.init_process_group",
    "torch.distributions.Distribution.set_default_validate_args",
    "torch.eye",
    "torch.float16",
    "torch.inference_mode",
    "torch.nn.Conv2d",
    "torch.nn.Embedding",
    "torch.nn.EmbeddingBag",
    "torch.nn.parallel.DistributedDataParallel",
    *(f"torch.optim.{name}" for name in ("ASGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax")),
    *(f"torch.optim.{name}" for name in ("NAdam", "RAdam", "RMSprop", "Rprop", "SGD", "SparseAdam")),
    "torch.profiler.profile",
    "torch.profiler.schedule",
    "torch.set_flush_denormal",
    "torch.set_num_threads",
    "torch.stack",
    "torch.utils.checkpoint.checkpoint",
    "torch.utils.data.Sampler",
    "torch.empty",
    "torch.ones",
    "torch.rand",
    "torch.randperm",
    "torch.randn",
    "torch.zeros",
)
"""Names that 1.13 has: https://docs.pytorch.org/docs/1.13/genindex.html."""

TABLE = (
    *(Api(name, rf"{re.escape(name)}\b", OLDEST, f"{_DOCS}/1.13/genindex.html") for name in _OLD),
    Api("torch.optim.Adafactor", r"torch\.optim\.Adafactor\b", (2, 5), f"{_DOCS}/2.5/optim.html"),
    Api(
        "torch.distributed.fsdp.fully_shard",
        r"torch\.distributed\.fsdp\.fully_shard\b",
        (2, 6),
        f"{_DOCS}/2.6/distributed.fsdp.fully_shard.html",
    ),
    Api(
        "torch.distributed.fsdp.FSDPModule.set_requires_all_reduce",
        r"\.set_requires_all_reduce\(",
        (2, 6),
        f"{_DOCS}/2.6/distributed.fsdp.fully_shard.html",
    ),
    Api(
        "torch.distributed.fsdp.FSDPModule.set_separate_reduce_scatter_group",
        r"\.set_separate_reduce_scatter_group\(",
        (2, 13),
        "https://github.com/pytorch/pytorch/pull/186335",
    ),
    Api(
        "torch.distributed.pipelining.Schedule1F1B",
        r"torch\.distributed\.pipelining\.Schedule1F1B\b",
        (2, 4),
        f"{_DOCS}/2.4/distributed.pipelining.html",
    ),
    Api(
        "torch._inductor.config._micro_pipeline_tp",
        r"torch\._inductor\.config\._micro_pipeline_tp\b",
        (2, 5),
        "https://discuss.pytorch.org/t/209487",
    ),
    Api("DataLoader(in_order=)", r"DataLoader\(.*in_order=", (2, 6), f"{_DOCS}/2.6/data.html"),
    Api("torch.autocast", r"torch\.autocast\(", OLDEST, f"{_DOCS}/1.13/amp.html"),
    Api("torch.amp.GradScaler", r"torch\.amp\.GradScaler\(", (2, 3), f"{_DOCS}/2.3/amp.html"),
    Api("torch.cuda.amp.GradScaler", r"torch\.cuda\.amp\.GradScaler\(", OLDEST, f"{_DOCS}/1.13/amp.html"),
    Api("torch.func", r"torch\.func\.", (2, 0), f"{_DOCS}/2.0/func.html"),
    Api("torch.compile", r"torch\.compile\(", (2, 0), f"{_NOTES}/v2.0.0"),
    Api("torch.compile(dynamic=)", r"torch\.compile\(.*dynamic=", (2, 0), f"{_DOCS}/2.0/generated/torch.compile.html"),
    Api("torch.compile(mode=)", r"torch\.compile\(.*mode=", (2, 0), f"{_DOCS}/2.0/generated/torch.compile.html"),
    Api(
        "torch.nn.functional.scaled_dot_product_attention",
        r"scaled_dot_product_attention\(",
        (2, 0),
        f"{_NOTES}/v2.0.0",
    ),
    Api(
        "torch.set_float32_matmul_precision",
        r"torch\.set_float32_matmul_precision\(",
        OLDEST,
        f"{_DOCS}/1.12/generated/torch.set_float32_matmul_precision.html",
    ),
    Api(
        "torch.backends.cudnn.allow_tf32",
        r"torch\.backends\.cudnn\.allow_tf32",
        OLDEST,
        f"{_DOCS}/1.13/notes/cuda.html",
    ),
    Api(
        "torch.backends.cuda.matmul.fp32_precision",
        r"torch\.backends\.cuda\.matmul\.fp32_precision",
        (2, 9),
        f"{_DOCS}/2.9/notes/cuda.html",
    ),
    Api(
        "torch.backends.cudnn.conv.fp32_precision",
        r"torch\.backends\.cudnn\.conv\.fp32_precision",
        (2, 9),
        f"{_DOCS}/2.9/notes/cuda.html",
    ),
    Api("torch.backends.cudnn.benchmark", r"torch\.backends\.cudnn\.benchmark", OLDEST, f"{_DOCS}/1.13/backends.html"),
    Api("torch.channels_last", r"torch\.channels_last", OLDEST, f"{_DOCS}/1.13/tensor_attributes.html"),
    Api(
        "Optimizer.zero_grad(set_to_none=)",
        r"zero_grad\(.*set_to_none=",
        OLDEST,
        f"{_DOCS}/1.13/generated/torch.optim.Optimizer.zero_grad.html",
    ),
    Api("Adam(fused=)", r"(?<!\w)Adam\(.*fused=", OLDEST, "https://github.com/huggingface/transformers/issues/22141"),
    Api(
        "AdamW(fused=)",
        r"(?<!\w)AdamW\(.*fused=",
        (2, 0),
        "https://github.com/huggingface/transformers/issues/22141",
    ),
    Api("SGD(fused=)", r"(?<!\w)SGD\(.*fused=", (2, 3), "https://github.com/pytorch/pytorch/pull/94791"),
    Api(
        "Adagrad(fused=)",
        r"(?<!\w)Adagrad\(.*fused=",
        (2, 13),
        "docstring of torch.optim.Adagrad in 2.13: CPU and CUDA; before, the CPU only",
    ),
    Api("Optimizer(foreach=)", r"\(.*foreach=", OLDEST, f"{_DOCS}/1.13/generated/torch.optim.SGD.html"),
    Api("DataLoader(persistent_workers=)", r"persistent_workers\s*=", OLDEST, f"{_DOCS}/1.13/data.html"),
    Api("DataLoader(prefetch_factor=)", r"prefetch_factor\s*=", OLDEST, f"{_DOCS}/1.13/data.html"),
    Api("DataLoader(pin_memory=)", r"pin_memory\s*=", OLDEST, f"{_DOCS}/1.13/data.html"),
    Api(
        "DistributedDataParallel(static_graph=)",
        r"static_graph\s*=",
        OLDEST,
        "https://github.com/pytorch/pytorch/pull/71459",
    ),
    Api(
        "DistributedDataParallel(gradient_as_bucket_view=)",
        r"gradient_as_bucket_view\s*=",
        OLDEST,
        f"{_DOCS}/1.13/generated/torch.nn.parallel.DistributedDataParallel.html",
    ),
    Api(
        "torch.utils.checkpoint.checkpoint(use_reentrant=)",
        r"checkpoint\(.*use_reentrant=",
        OLDEST,
        f"{_DOCS}/1.13/checkpoint.html",
    ),
    Api("expandable_segments", r"expandable_segments", (2, 1), "https://github.com/pytorch/pytorch/pull/99933"),
)
"""Every name that a change uses, and alternatives for other versions."""

_BY_NAME = {each.name: each for each in TABLE}
_NUMBERS = re.compile(r"(\d+)\.(\d+)")


def version_of(text: str | None) -> Version | None:
    """Return major and minor number of a version such as ``2.13.0+cpu``; None if it has none."""
    found = _NUMBERS.match(text or "")
    return (int(found.group(1)), int(found.group(2))) if found else None


def has_api(version: str | None, name: str) -> bool:
    """Return whether a torch version has a name of the table; True for an unknown version.

    Raises:
        KeyError: the table lacks the name.
    """
    known = version_of(version)
    return known is None or known >= _BY_NAME[name].since


def first_version(change: object) -> Version:
    """Return the first version that has everything in a change; anything but text needs nothing."""
    return _first_version(change) if isinstance(change, str) else OLDEST


@lru_cache  # rules propose the same for each recording
def _first_version(change: str) -> Version:
    return max((each.since for each in TABLE if re.search(each.pattern, change)), default=OLDEST)


def needed_version(change: object, version: str | None) -> str | None:
    """Return the torch version that a change needs; None if the recorded version has it, or every version does."""
    first, known = first_version(change), version_of(version)
    if first <= OLDEST or (known is not None and known >= first):
        return None
    return f"{first[0]}.{first[1]}"
