"""The settings of a captured run, and the settings of the report itself."""

from __future__ import annotations

from collections.abc import Iterator

from traceadvisor.model.report import Report
from traceadvisor.model.run import LoaderSettings, Repository, Run, RunSettings
from traceadvisor.rendering.document.blocks import Fact, Facts, FactsLook, Group
from traceadvisor.rendering.origins import location_words
from traceadvisor.rendering.units import NOT_MEASURED, count, duration, money, percent


def settings_group(run: Run, about: str | None) -> Group:
    """The settings of a run."""
    settings = run.settings
    rows = (
        ("Command", " ".join(run.command) or NOT_MEASURED),
        ("End of the script", f"It {run.ending}"),
        *_repository(run.repository),
        *_loader(settings.loader),
        *_torch(settings),
        *_host(settings),
    )
    facts = Facts(tuple(Fact(name, value) for name, value in rows), FactsLook.SETTINGS)
    return Group("Settings", (facts,), about=about)


def _repository(repository: Repository | None) -> Iterator[tuple[str, str]]:
    """The commit that ran, if known."""
    if repository is None:
        return
    yield "Repository", repository.root
    branch = f" on {repository.branch}" if repository.branch else ""
    changes = {True: ", with changes", False: "", None: ", changes unknown"}[repository.dirty]
    yield "Commit", f"{repository.commit or NOT_MEASURED}{branch}{changes}"


def _loader(loader: LoaderSettings | None) -> Iterator[tuple[str, str]]:
    if loader is None:
        yield "Data loader", NOT_MEASURED
        return
    yield "Training loop", location_words(loader.location) if loader.location else NOT_MEASURED
    yield "batch_size", _number(loader.batch_size)
    yield "num_workers", _number(loader.worker_count)
    yield "prefetch_factor", "not applicable" if loader.worker_count == 0 else _number(loader.prefetch_factor)
    yield "pin_memory", _flag(loader.pin_memory)
    yield "persistent_workers", _flag(loader.persistent_workers)
    yield "drop_last", _flag(loader.drop_last)
    yield "Samples in the dataset", _number(loader.dataset_length)
    if loader.sampler is not None:
        yield "Sampler", loader.sampler
    if loader.sample_count is not None:
        yield "Samples per epoch, this rank", _number(loader.sample_count)


def _torch(settings: RunSettings) -> Iterator[tuple[str, str]]:
    seen = settings.torch_version is not None  # if False, an absent value means unknown
    yield "Optimizer", settings.optimizer or NOT_MEASURED
    if settings.optimizer_fused is not None:
        yield "fused", _flag(settings.optimizer_fused)
    if settings.optimizer_foreach is not None:
        yield "foreach", _flag(settings.optimizer_foreach)
    yield "Autocast", settings.autocast_dtype or ("not used" if seen else NOT_MEASURED)
    yield "GradScaler", _flag(settings.grad_scaler)
    yield "TF32 in matmuls", _flag(settings.matmul_tf32)
    yield "TF32 in cuDNN", _flag(settings.cudnn_tf32)
    yield "cudnn.benchmark", _flag(settings.cudnn_benchmark)
    yield from _debugging(settings)
    yield "PyTorch", settings.torch_version or NOT_MEASURED
    yield "CUDA", settings.cuda_version or ("not in this build" if seen else NOT_MEASURED)
    yield "Python", settings.python_version or NOT_MEASURED


def _debugging(settings: RunSettings) -> Iterator[tuple[str, str]]:
    """Debugging options that are on, and environment variables."""
    if settings.detect_anomaly:
        yield "Anomaly detection", "on"
    if settings.cuda_sync_debug_mode:
        yield "CUDA sync debug mode", {1: "warn", 2: "error"}.get(settings.cuda_sync_debug_mode, NOT_MEASURED)
    if settings.own_profiler_share:
        yield "Steps under the script's own profiler", percent(settings.own_profiler_share)
    if settings.python_profiler:
        share = percent(settings.python_profiler_share or 0.0)
        yield "Steps whose Python code is profiled or traced", f"{share}, by {settings.python_profiler}"
    if settings.gc_share is not None:
        longest = "" if settings.gc_longest_ns is None else f", longest {duration(settings.gc_longest_ns)}"
        yield "Time in garbage collection", f"{percent(settings.gc_share)}{longest}"
    if settings.gc_long_count:
        steps = "" if not settings.gc_long_steps else f", in {_step_numbers(settings)}"
        yield "Garbage collections of 10 ms or longer", f"{settings.gc_long_count}{steps}"
    yield from settings.environment.items()


def _step_numbers(settings: RunSettings) -> str:
    """The steps of the first long collections."""
    more = ", …" if (settings.gc_long_count or 0) > len(settings.gc_long_steps) else ""
    return f"step {', '.join(map(str, settings.gc_long_steps))}{more}"


def _host(settings: RunSettings) -> Iterator[tuple[str, str]]:
    yield "CPUs", _number(settings.cpu_count)
    unlimited = NOT_MEASURED if settings.cpu_count is None else "all"
    yield "Cores available to the process", unlimited if settings.cpu_quota is None else f"{settings.cpu_quota:g}"
    if settings.torch_threads is not None:
        yield "CPU threads per operator", _number(settings.torch_threads)


def _number(value: int | None) -> str:
    return NOT_MEASURED if value is None else count(value)


def _flag(value: bool | None) -> str:  # noqa: FBT001  # the setting itself
    return NOT_MEASURED if value is None else "on" if value else "off"


def settings_facts(report: Report) -> Iterator[tuple[str, str]]:
    """Label and value of each setting of the report that is not a default."""
    settings = report.settings
    if settings.file is not None:
        yield "Settings", str(settings.file)
    if settings.select:
        yield "Rules selected", ", ".join(settings.select)
    if settings.ignore:
        yield "Rules ignored", ", ".join(settings.ignore)
    thresholds = [
        f"{rule}.{name} = {_value(value)}"
        for rule, values in settings.thresholds.items()
        for name, value in values.items()
    ]
    if thresholds:
        yield "Thresholds set", ", ".join(thresholds)
    if settings.providers:
        yield "Rules from plugins", ", ".join(f"{rule} ({provider})" for rule, provider in settings.providers.items())
    if settings.price is not None:
        yield "GPU price", f"{money(settings.price.per_gpu_hour, settings.price.currency)} per hour"


def _value(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:g}" if not isinstance(value, bool) else str(value).lower()
