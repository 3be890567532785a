"""Words for what another GPU or batch would change."""

from __future__ import annotations

from math import ceil

from traceadvisor.model.whatif import Basis, Change, Fit, Ground, MemoryFit, Range, Remedy, Row, StepLimit, Unknown
from traceadvisor.rendering.units import count, duration, money, number_of, percent, size, whole_percent
from traceadvisor.text.ranges import between, spread

GIB = 1 << 30

LIMIT = {
    StepLimit.GPU: "GPU",
    StepLimit.CPU: "CPU",
    StepLimit.LOADER: "data loader",
    StepLimit.COMMUNICATION: "communication",
    StepLimit.SEVERAL: "CPU and GPU in turn",
}

FIT = {Fit.YES: "fits", Fit.NO: "does not fit", Fit.PERHAPS: "unsure"}

BASIS = {
    Basis.MEASURED: "steps of the recording",
    Basis.ARITHMETIC: "kernels with recorded shapes, by the published rates of their number type or of memory",
    Basis.NAMED: "matrix kernels known by name alone, by the published rates of their number type or of memory",
    Basis.BANDWIDTH: "other kernels, by published memory bandwidth",
    Basis.UNKNOWN_KERNELS: "kernels of unknown work, by any ratio of published rates",
    Basis.CPU_KEPT: "CPU time as recorded: your machine, with other cores it differs",
    Basis.CPU_UNKNOWN: "the CPU of another machine: as recorded, or half to twice as fast",
    Basis.CPU_STATED: "CPU speed as you state it",
    Basis.CPU_CORES: "CPU time with other cores: between as recorded and in proportion to their number",
    Basis.HOST_LINK: "copies by published links to the CPU",
    Basis.PEER_LINK: "collectives by published links between GPUs",
    Basis.BATCH_ASSUMED: "growth with the batch: an assumption, because one batch size was recorded",
    Basis.BATCH_MEASURED: "growth with the batch: a line through recorded batch sizes",
    Basis.BATCHES_BY_CLOCK: "time of loader workers for a batch, as measured",
    Basis.LOSSES: "time in which the recording does not show what the GPU did",
}

REMEDY = {
    Remedy.CHECKPOINTING: "with activation checkpointing, it",
    Remedy.MIXED_PRECISION: "with activations in 16 bits, if they have 32 now, it",
    Remedy.OPTIMIZER_STATE: "with an optimizer state of 8 bits, if it has more now, it",
}

BRIEF = {
    Basis.ARITHMETIC: "kernels with recorded shapes",
    Basis.NAMED: "matrix kernels by name",
    Basis.BANDWIDTH: "kernels limited by memory",
    Basis.UNKNOWN_KERNELS: "unknown kernels",
}

UNKNOWN = {
    Unknown.NO_STEP: "No figures: the recording has no step that can be simulated.",
    Unknown.RECORDED_GPU: "No figures: no published rates of the recorded GPU. Name it with --recorded-gpu.",
    Unknown.NO_GPU: "No figures: the recording has no GPU operation.",
    Unknown.NO_RATE: "No figures: no published rate of this GPU for {}.",
    Unknown.NO_LINK: "No figures: no published link between such GPUs.",
    Unknown.RECORDED_BATCH: "No figures: the recorded batch is unknown. State it with --recorded-batch.",
    Unknown.MEMORY_OF_BATCH: "No figures: the memory of a batch was not recorded. Capture with --memory-history.",
    Unknown.NOTHING_FITS: "No figures: no batch surely fits.",
    Unknown.BATCH_COST: "No figures: the time of a batch in the loader is unknown. Record with traceadvisor capture.",
    Unknown.GRADIENTS: "No figures: the size of gradients is unknown. Capture with --memory-history.",
    Unknown.COLLECTIVES: "No figures: the recording is of several GPUs, and does not show what they exchange.",
    Unknown.CORES: "No figures: the number of recorded cores is unknown. Record with traceadvisor capture.",
    Unknown.IN_PROCESS: "No figures: loading without workers was not recorded. Record it with num_workers=0.",
}


def reason(row: Row) -> str:
    """Why a row has no figures."""
    return UNKNOWN[row.unknown].format(row.missing) if row.unknown else ""


def change_words(change: Change, recorded: str = "as recorded") -> str:
    """Name a change: ``NVIDIA T4, batch 64``."""
    parts = [change.gpu] if change.gpu else []
    if change.ranks is not None:
        parts.append(number_of(change.ranks, "GPU"))
    if change.batch is not None or change.is_largest:
        size_words = "" if change.batch is None else f" {change.batch:,}"
        parts.append(f"largest batch{size_words}" if change.is_largest else f"batch{size_words}")
    if change.workers is not None:
        parts.append(number_of(change.workers, "worker"))
    if change.cpu_cores is not None:
        parts.append(number_of(change.cpu_cores, "CPU core"))
    return ", ".join(parts) or recorded


def time_range(step_ns: Range) -> str:
    """Return the ends of a time: ``154 to 318 ms``."""
    return spread(duration(step_ns.low), duration(step_ns.high)) or ""


def count_range(values: Range) -> str:
    """Return the ends of a count."""
    return spread(count(values.low), count(values.high)) or ""


def percent_range(shares: Range) -> str:
    """Return the ends of a share."""
    return spread(whole_percent(shares.low), whole_percent(shares.high)) or ""


def money_range(amounts: Range, currency: str) -> str:
    """Return the ends of an amount of money: ``2.10 to 4.50 USD``."""
    low, high = money(amounts.low, currency), money(amounts.high, currency)
    return "" if low == high else between(low.removesuffix(f" {currency}"), high)


def times(ratio: Range) -> str:
    """Return a speed-up with its ends: ``1.9 (1.7 to 2.0)``."""
    ends = spread(f"{ratio.low:.2f}", f"{ratio.high:.2f}")
    return f"{ratio.expected:.2f} ({ends})" if ends else f"{ratio.expected:.2f}"


def memory_words(memory: MemoryFit) -> tuple[str, str]:
    """Return whether a training fits, and what it needs of what there is."""
    return FIT[memory.fit], f"{_gib(memory.needed_bytes)} of {size(memory.capacity_bytes)}"


def _gib(needed: Range) -> str:
    return spread(f"{needed.low / GIB:.1f}", f"{needed.high / GIB:.1f}") or f"{needed.expected / GIB:.1f}"


def remedy_words(memory: MemoryFit, batch: int | None) -> str | None:
    """Say what would make a batch fit; None if it fits, or if nothing shows it."""
    if memory.fit is Fit.YES or memory.largest_batch is None:
        return None
    parts = ["no batch surely fits"]
    if largest := memory.largest_batch:
        parts = [f"batch {largest:,} surely fits"]
        if batch and (count := ceil(batch / largest)) > 1:
            parts.append(f"accumulate {count} of them for at least {batch:,} samples in each optimizer step")
    for one in memory.reliefs:
        fits = "surely fits" if one.fit is Fit.YES else "may fit"
        parts.append(f"{REMEDY[one.remedy]} {fits} ({_gib(one.needed_bytes)} GiB)")
    if memory.reliefs or not memory.largest_batch:
        parts.append("`traceadvisor report` lists what fills the memory")
    return "; ".join(parts)


def ground_words(ground: Ground) -> str:
    """Name a ground with its share of the recorded GPU time."""
    share = "" if ground.share is None else f" ({percent(ground.share)} of the GPU time)"
    if ground.basis is Basis.LOSSES and ground.share is not None:
        share = f" ({percent(ground.share)} of the step)"
    return f"{BASIS[ground.basis]}{share}"
