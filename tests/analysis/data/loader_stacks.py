"""Stacks inside torch's data loader, as samples show them."""

from tests.analysis.sampled.sampling import MAIN, library
from traceadvisor.model.samples import SampledFrame

LOADER = "torch/utils/data/dataloader.py"
NEXT = library("__next__", 721, LOADER)
ITER = library("__iter__", 490, LOADER)
_DATA = library("_next_data", 1445, LOADER)
_TAKE = library("_try_get_data", 1291, LOADER)

SAMPLER = (MAIN, NEXT, _DATA, library("_next_index", 715, LOADER))
MAKING = (MAIN, NEXT, _DATA, library("fetch", 54, "torch/utils/data/_utils/fetch.py"))
WAITING = (MAIN, NEXT, _DATA, _TAKE, library("get", 113, "multiprocessing/queues.py"), library("select", 415, "x.py"))
RECEIVING = (MAIN, NEXT, _DATA, _TAKE, library("rebuild_storage_fd", 538, "torch/multiprocessing/reductions.py"))
PINNING = (MAIN, NEXT, _DATA, library("pin_memory", 50, "torch/utils/data/_utils/pin_memory.py"))
QUEUE = (MAIN, library("get", 171, "queue.py"), library("wait", 320, "threading.py"))
STOPPING = (MAIN, NEXT, _DATA, library("_shutdown_workers", 1606, LOADER))
STARTING = (MAIN, ITER, library("start", 121, "multiprocessing/process.py"))
FIRST_INDICES = (MAIN, ITER, library("_reset", 1276, LOADER), library("_next_index", 715, LOADER))

IN_LOCK = (
    SampledFrame("__getitem__", "data.py", 9, is_user=True),
    library("__enter__", 95, "multiprocessing/synchronize.py"),
)
ASLEEP = (SampledFrame("__getitem__", "data.py", 10, is_user=True), SampledFrame("sleep"))
