"""Simulated trainings put together by chance, for properties that hold for every recording."""

from __future__ import annotations

from random import Random

from tests.recordings.generated.machine import A100, COMPUTE, H100, MI300, V100, Kernel, Process

COLLECTIVES = (
    ("allreduce", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
    ("_allgather_base", "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
    ("all_to_all", "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"),
)
KERNELS = (
    "ampere_sgemm_128x64_tn",
    "volta_sgemm_64x64_nt",
    "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_tn",
    "void cudnn::nchwToNhwcKernel<float, float, float, false, true>({})",
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>({})",
)


def training_by_chance(seed: int, run: int = 0) -> Process:
    """Some steps of the same random program, with loading, copies, operators, waits and collectives.

    ``run``: number of the run of this program; how long its batches take differs by chance.
    """
    program, noise = Random(seed), Random(-seed - 1000 * run)
    process = Process(program.choice((A100, H100, V100, MI300)), rank=1, ranks=program.choice((2, 8)))
    actions = [(program.random(), program.random(), program.choice(KERNELS)) for _ in range(program.randint(10, 120))]
    kind = program.choice(("_SingleProcessDataLoaderIter", "_MultiProcessingDataLoaderIter"))
    loading_us, kernel_us = 10 ** program.uniform(1, 4), 10 ** program.uniform(0.5, 3.5)
    pinned, reads = program.random() < 0.5, program.random() < 0.5
    for number in range(1, 1 + program.randint(1, 7)):
        with process.step(number):
            with process.loader(kind):
                process.busy(loading_us * noise.uniform(0.9, 1.1))
            process.upload(kernel_us, round(kernel_us * 10_000), pinned=pinned)
            middle = len(actions) // 2
            for action in actions[:middle]:
                _do(process, action, kernel_us)
            with process.backward():
                for action in actions[middle:]:
                    _do(process, action, kernel_us)
            with process.within("Optimizer.step#SGD.step"):
                for _ in range(program.randint(1, 30)):
                    process.op("aten::add_", kernels=[Kernel(KERNELS[-1], 5)])
            if reads:
                process.item()
    return process


def _do(process: Process, action: tuple[float, float, str], kernel_us: float) -> None:
    what, size, name = action
    if what < 0.7:
        side = 64 * (1 + int(size * 8))
        kernels = [Kernel(name, kernel_us * (0.5 + size))]
        process.op("aten::linear", "aten::mm", kernels=kernels, dims=[[side, side]] * 2, types=("float", "float"))
    elif what < 0.8:
        process.busy(2000 * size)
    elif what < 0.87:
        process.item()
    elif what < 0.92:
        process.upload(5, 4096, pinned=size < 0.5)
    elif what < 0.98:
        collective, kernel = COLLECTIVES[int(size * len(COLLECTIVES))]
        process.collective(collective, Kernel(kernel, 3 * kernel_us, 20, 0.2), elements=1_000_000, dtype="Float")
        if size < 0.5:
            process.hold(COMPUTE, 20)
    else:
        process.synchronize()
