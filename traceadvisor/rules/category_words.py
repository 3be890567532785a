"""Words for the categories of a breakdown in the labels of evidence."""

from __future__ import annotations

from traceadvisor.model.breakdown import Category

CATEGORY_WORDS = {
    Category.KERNEL: "kernels",
    Category.COMMUNICATION: "communication",
    Category.H2D_COPY: "CPU-to-GPU copies",
    Category.OTHER_COPY: "other copies",
    Category.IDLE_UNKNOWN: "unknown",
    Category.DATA_WAIT: "data wait",
    Category.IDLE_DEVICE: "GPU idle (kernel-launch latency)",
    Category.IDLE_PROFILER: "GPU idle (profiler overhead)",
    Category.IDLE_ALLOCATOR: "GPU idle (memory allocation)",
    Category.IDLE_SYNC: "GPU idle (after a synchronisation)",
    Category.IDLE_LAUNCH: "GPU idle (CPU launching kernels)",
    Category.IDLE_HOST: "GPU idle (other CPU work)",
    Category.OPTIMIZER: "optimizer",
    Category.BACKWARD: "backward pass",
    Category.FORWARD: "forward pass and other operators",
    Category.OTHER_HOST: "other CPU work",
}
