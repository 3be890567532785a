"""``settings.<rank>.json`` to :class:`~traceadvisor.model.run.RunSettings`; a figure that cannot be is not known."""

from __future__ import annotations

import msgspec

from traceadvisor.bundle.layout import TOLD_VARIABLES, LoaderSettings, Settings
from traceadvisor.model import run as model
from traceadvisor.model.findings import Location

MOST = 1 << 53
"""No count of anything reaches it."""

LONGEST_TEXT = 1000


def read_settings(content: bytes) -> model.RunSettings:
    """What a file holds.

    Raises:
        ValueError: it is not what a capture writes (what msgspec raises is one).
    """
    settings = msgspec.json.decode(content, type=Settings)
    limits = [limit for limit in (settings.cpu_quota, settings.cpu_affinity) if limit is not None]
    return model.RunSettings(
        loader=_loader(settings.loader) if settings.loader else None,
        optimizer=settings.optimizer.name if settings.optimizer else None,
        optimizer_fused=settings.optimizer.fused if settings.optimizer else None,
        optimizer_foreach=settings.optimizer.foreach if settings.optimizer else None,
        autocast_dtype=settings.autocast_dtype,
        grad_scaler=settings.grad_scaler,
        matmul_tf32=settings.matmul_tf32,
        cudnn_tf32=settings.cudnn_tf32,
        cudnn_benchmark=settings.cudnn_benchmark,
        torch_version=settings.torch_version,
        cuda_version=settings.cuda_version,
        python_version=settings.python_version,
        cpu_count=settings.cpu_count,
        cpu_quota=min(limits) if limits else None,
        torch_threads=_count(settings.torch_threads),
        detect_anomaly=settings.detect_anomaly,
        cuda_sync_debug_mode=_count(settings.cuda_sync_debug_mode),
        gc_share=_share(settings.gc_share),
        gc_longest_ns=_count(settings.gc_longest_ns),
        own_profiler_share=_share(settings.own_profiler_share),
        own_code=None if settings.own_code is None else frozenset(settings.own_code),
        environment={
            name: value[:LONGEST_TEXT] for name, value in settings.environment.items() if name in TOLD_VARIABLES
        },
    )


def _loader(loader: LoaderSettings) -> model.LoaderSettings:
    return model.LoaderSettings(
        batch_size=_count(loader.batch_size) or None,
        worker_count=loader.num_workers if loader.num_workers is None else max(loader.num_workers, 0),
        prefetch_factor=loader.prefetch_factor,
        pin_memory=loader.pin_memory,
        persistent_workers=loader.persistent_workers,
        drop_last=loader.drop_last,
        dataset_length=loader.dataset_length,
        location=Location(loader.file, loader.line, loader.function) if loader.file and loader.line else None,
        sample_count=_count(loader.sample_count),
        batch_count=_count(loader.batch_count),
        sampler=loader.sampler,
    )


def _count(number: int | None) -> int | None:
    return number if number is not None and 0 <= number < MOST else None


def _share(number: float | None) -> float | None:
    return number if number is not None and 0 <= number <= 1 else None
