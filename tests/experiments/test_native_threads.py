import os
import time

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from traceadvisor.experiments.inside.native_threads import LimitedThreads
from traceadvisor.experiments.inside.sources import Source, own_settings
from traceadvisor.experiments.settings import Settings


class Products(Dataset[torch.Tensor]):
    """Each sample computes matrix products, and tells the share of their CPU time in other threads."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        left = np.ones((900, 900), "float32")
        process_s, thread_s = time.process_time(), time.thread_time()
        for _ in range(6):
            left = left @ left * 1e-3
        process_s, thread_s = time.process_time() - process_s, time.thread_time() - thread_s
        return torch.tensor(1 - thread_s / process_s + 0 * index)


def _share_of_others(loader: DataLoader[torch.Tensor], **settings: int) -> float:
    """The CPU time of a worker in other threads than the one that makes batches, as a share of all of it."""
    source = Source(loader, Settings.of(settings))
    try:
        return float(torch.stack([source.next().mean() for _ in range(3)]).mean())
    finally:
        source.close()


@pytest.mark.nightly("traceadvisor/experiments")
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one core has one thread")
def test_workers_compute_with_as_many_native_threads_as_the_setting_says() -> None:
    loader = DataLoader(Products(), batch_size=2)
    assert _share_of_others(loader, num_workers=1, native_threads=1) < 0.1
    assert _share_of_others(loader, num_workers=1) > 0.2


def test_the_scripts_own_worker_init_fn_runs_first() -> None:
    calls: list[int] = []
    before = dict(os.environ)
    try:
        LimitedThreads(1, calls.append)(3)
        assert os.environ["OPENBLAS_NUM_THREADS"] == "1"
    finally:
        os.environ.clear()
        os.environ.update(before)
    assert calls == [3]


def test_the_order_of_batches_is_a_setting_of_the_loader() -> None:
    loader = DataLoader(Products(), batch_size=2)
    assert own_settings(loader)["in_order"] is True
    source = Source(loader, Settings.of({"num_workers": 1, "in_order": False}))
    try:
        assert source._loader.in_order is False
    finally:
        source.close()
