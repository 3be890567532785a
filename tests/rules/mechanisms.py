"""The evidence of each rule's mechanism, as data, and recordings without it.

A symptom, such as idle time or a slow step, stays: without the evidence of its mechanism, a rule has nothing to say.
Where the mechanism is a stretch of time in which nothing is recorded, the events around it go.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from traceadvisor.facts import Facts
from traceadvisor.model.events import Kind, Sparse
from traceadvisor.model.run import Run, TimedBatch

OTHER = "other work"


@dataclass(frozen=True)
class Evidence:
    """Parts of a recording and its run that show a mechanism."""

    names: str | None = None
    """Matches names of operators, calls, kernels and frames."""

    kinds: tuple[Kind, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    """Patterns in types, shapes and stacks, with what stands in their place."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    """Values of settings that do not show it; of ``loader`` those of the loader."""

    batch: Callable[[TimedBatch], TimedBatch] | None = None
    """Changes each timed batch to one that does not show it."""

    run: Mapping[str, Any] = field(default_factory=dict)
    known: Sequence[str] = ()
    """Facts about samples of the machine that are unknown without it."""

    device: Mapping[str, Any] = field(default_factory=dict)
    names_both: bool = False
    """Whether the rule still finds something without it, with a caveat that names the other cause."""

    memory: bool = False
    """Whether samples of the allocator show it."""

    occupancy: bool = False
    """Whether the occupancy that the profiler estimated shows it."""

    def removed(self, facts: Facts) -> Facts:
        """The same recording and run without this evidence."""
        trace = facts.trace
        kind = np.where(np.isin(trace.events.kind, self.kinds), Kind.OTHER, trace.events.kind).astype(np.int8)
        columns = {name: getattr(trace.events, name) for name in trace.events.dtypes()}
        trace = replace(
            trace,
            events=type(trace.events)(**columns | {"kind": kind}),
            names=tuple(self._without_name(name) for name in trace.names),
            texts=tuple(self._without_text(text) for text in trace.texts),
            memory=_nothing_of(trace.memory) if self.memory else trace.memory,
            details=replace(trace.details, blocks_per_sm=_nothing(), occupancy_percent=_nothing())
            if self.occupancy
            else trace.details,
            devices=tuple(replace(one, **self.device) for one in trace.devices),
        )
        run = self._without_run(facts.captured) if facts.captured else None
        found = Facts(trace, facts.device_index, facts.recording_id, run, facts.run_notes)
        vars(found.run).update({name: None if name in self.known else value for name, value in _sampled(facts)})
        return found

    def _without_name(self, name: str) -> str:
        return re.sub(self.names, OTHER, name) if self.names else name

    def _without_text(self, text: str) -> str:
        for pattern, other in self.texts.items():
            text = re.sub(pattern, other, text)
        return self._without_name(text)

    def _without_run(self, run: Run) -> Run:
        settings = dict(self.settings)
        if (loader := settings.pop("loader", None)) and run.settings.loader:
            settings["loader"] = replace(run.settings.loader, **loader)
        batches = tuple(map(self.batch, run.batches)) if self.batch else run.batches
        return replace(run, **{"batches": batches, "settings": replace(run.settings, **settings), **self.run})


def _sampled(facts: Facts) -> list[tuple[str, Any]]:
    """Samples of the machine that a test has given."""
    names = ("telemetry", "device_telemetry", "sampled_device")
    return [(name, value) for name, value in vars(facts.run).items() if name in names]


def _nothing() -> Any:
    return Sparse(np.empty(0, np.int64), np.empty(0, np.float64))


def _nothing_of(table: Any) -> Any:
    return replace(table, **{column.name: getattr(table, column.name)[:0] for column in fields(table) if column.init})


def _without_cpu(batch: TimedBatch) -> TimedBatch:
    return replace(batch, fetch_cpu_ns=0, collate_cpu_ns=0, process_cpu_ns=0, threads_cpu_ns=0)


def _single_threaded(batch: TimedBatch) -> TimedBatch:
    return replace(batch, process_cpu_ns=batch.thread_cpu_ns, threads_cpu_ns=0)


def _never_waiting(batch: TimedBatch) -> TimedBatch:
    return replace(batch, fetch_cpu_ns=batch.fetch_ns, collate_cpu_ns=batch.collate_ns, core_wait_ns=0)


def _without_waits_for_storage(batch: TimedBatch) -> TimedBatch:
    return replace(_never_waiting(batch), process_cpu_ns=batch.fetch_ns)


LOADING = r"DataLoader|__next__|data\.next"
COLLECTIVE = r"(?i)nccl|gloo|rccl|hcom_|record_param_comms|c10d|deep_?ep|hybrid_?ep|all_?(?:reduce|gather|to_?all)"
COMMUNICATES = Evidence(names=COLLECTIVE, kinds=(Kind.COLLECTIVE,))
NO_LOADER = Evidence(names=LOADING, run={"batches": (), "steps": (), "stacks": None, "loader_stacks": None})
SAMPLES = ("telemetry", "device_telemetry", "sampled_device")
TYPES = {r"\bfloat\b|\bdouble\b|c10::\w+": "int"}

MECHANISMS: Mapping[str, Evidence] = {
    "DATA001": NO_LOADER,
    "DATA002": NO_LOADER,
    "DATA003": NO_LOADER,
    "DATA004": replace(NO_LOADER, names=None, run={}, batch=_without_cpu, known=("telemetry",)),
    "DATA005": Evidence(batch=_without_waits_for_storage, known=("telemetry",), run={"loader_stacks": None}),
    "DATA006": NO_LOADER,
    "DATA007": Evidence(settings={"loops": ()}, run={"steps": (), "stacks": None}),
    "DATA008": Evidence(names=r".*\.py.*", texts={r".*\.py.*": ""}),
    "DATA009": Evidence(batch=_never_waiting, known=("telemetry",), settings={"cpu_quota": None}),
    "DATA010": NO_LOADER,
    "DATA011": Evidence(run={"batches": ()}, known=("telemetry",)),
    "DATA012": Evidence(run={"loader_stacks": None, "stacks": None}),
    "DATA013": Evidence(settings={"padding": None}, texts={r"\[\[.*": "[]"}),
    "DATA014": Evidence(names=r"(?i).*iter.*|.*\bdata\b.*|.*batch.*|.*next.*"),
    "DATA015": Evidence(settings={"loops": ()}, run={"stacks": None}),
    "DATA016": Evidence(run={"loader_stacks": None}),
    "DATA017": Evidence(batch=_single_threaded, run={"stacks": None, "loader_stacks": None}),
    "DATA018": Evidence(run={"batches": ()}),
    "DATA019": Evidence(settings={"repeated_share": None}),
    "DATA020": Evidence(settings={"repeated_results": None}),
    "DIST019": Evidence(settings={"loader": {"data_digest": None}}),
    **{f"DIST{number:03}": COMMUNICATES for number in (2, 3, 4, 6, 9, 10, 11, 12, 13, 14, 16, 17)},
    "DIST018": Evidence(names=r".*\.py.*"),
    "DIST001": Evidence(names=r"(?i)DataParallel|replicate|broadcast|scatter|gather|nccl"),
    "DIST007": Evidence(settings={"loader": {"batch_count": None, "sample_count": None}}),
    "DIST005": COMMUNICATES,
    "DIST008": Evidence(settings={"loader": {"batch_size": None}}, texts={r"\[\[.*": "[]"}),
    "GPU001": Evidence(
        texts=TYPES, names=r"(?i)sgemm|gemm|conv|tf32|f32|mm\b", settings={"autocast_dtype": "bfloat16"}
    ),
    "GPU002": Evidence(
        texts=TYPES, names=r"(?i)sgemm|gemm|scudnn|conv|mm\b", settings={"matmul_tf32": True, "cudnn_tf32": True}
    ),
    "GPU003": Evidence(names=r"(?i)\w*align\d\w*", texts={r"\[\[.*": "[]"}),
    "GPU004": Evidence(names=r"(?i)softmax|bmm|matmul|attention"),
    "GPU005": Evidence(names=r"(?i)Optimizer|optim", settings={"optimizer": None}),
    "GPU006": Evidence(names=r"(?i)elementwise|aten::(?:add|mul|relu|gelu|sub|div|tanh|sigmoid)\w*"),
    "GPU007": Evidence(names=r"(?i)nchw|nhwc|transpose|permute"),
    "GPU008": Evidence(names=r"(?i)conv|cudnn", settings={"cudnn_benchmark": True}),
    "GPU009": Evidence(names=r"(?i)x", occupancy=True),
    "GPU010": Evidence(texts={r"\[\[.*": "[]"}, names=r"(?i)gemm|mm\b|conv"),
    "GPU011": Evidence(kinds=(Kind.KERNEL,)),
    "GPU012": Evidence(names=r"(?i)batch_?norm|_norm\b"),
    "GPU013": Evidence(kinds=(Kind.KERNEL,)),
    "GPU014": Evidence(kinds=(Kind.MEMSET,), names=r"(?i)zero_?grad|zero_|fill"),
    "GPU015": Evidence(texts={"double": "float"}, names=r"(?i)dgemm|double|f64"),
    "GPU025": Evidence(settings={"ignored_targets": None}),
    "GPU026": Evidence(names=r"aten::log_softmax"),
    "GPU016": Evidence(settings={"unused_gradients": None}),
    "GPU017": Evidence(names=r"(?i)embedding"),
    "GPU018": Evidence(names=r"(?i)index|select|slice|gather|getitem|item"),
    "GPU019": Evidence(names=r"(?i)Optimizer|optim"),
    "GPU020": Evidence(names=r"_to_copy|ToCopy", settings={"autocast_dtype": None}),
    "GPU021": Evidence(
        names=r"(?i)Parametrization\w*|linalg\w*|_?coalesce|unique\w*|aten::(?:sub|repeat|one_hot)$|^[A-Z]\w*$|.*\.py\(\d+\).*"
    ),
    "GPU023": Evidence(names=r"aten::cat", texts={r"\[\[.*": "[]"}),
    "GPU024": Evidence(settings={"subnormal_share": None}),
    "H2D001": Evidence(names=r"(?i)pageable|pinned"),
    "H2D002": Evidence(names=r"(?i)memcpy|copy", kinds=(Kind.COPY_H2D,)),
    "H2D003": Evidence(kinds=(Kind.COPY_H2D,)),
    "H2D004": Evidence(kinds=(Kind.COPY_H2D, Kind.COPY_D2H)),
    "H2D005": Evidence(kinds=(Kind.COPY_H2D,)),
    "H2D006": Evidence(kinds=(Kind.COPY_H2D,)),
    **{f"HW00{number}": Evidence(known=SAMPLES) for number in (1, 2, 3, 4)},
    "HW005": Evidence(kinds=(Kind.RUNTIME, Kind.OPERATOR)),
    "IDLE001": Evidence(
        names=r"(?i)\w*synchron\w*|\w*memcpy\w*|aten::item|local_scalar_dense|nonzero", kinds=(Kind.RUNTIME,)
    ),
    "IDLE002": Evidence(kinds=(Kind.OPERATOR, Kind.RUNTIME)),
    "IDLE003": Evidence(kinds=(Kind.KERNEL,)),
    "IDLE004": Evidence(names=r".*\.py.*", kinds=(Kind.OPERATOR, Kind.RUNTIME, Kind.KERNEL), texts={r".*\.py.*": ""}),
    "IDLE005": Evidence(
        settings={"gc_share": None, "gc_long_share": None, "gc_long_count": None}, names=r"(?i).*\bgc\b.*|.*collect.*"
    ),
    "IDLE006": Evidence(run={"steps": ()}, names=r"ProfilerStep"),
    "IDLE007": Evidence(
        names=r"(?i)isnan|evaluate_function",
        kinds=(Kind.RUNTIME,),
        settings={
            "detect_anomaly": None,
            "own_profiler_share": None,
            "python_profiler": None,
            "environment": {},
            "cuda_sync_debug_mode": None,
        },
    ),
    "IDLE008": Evidence(names=r"(?i)compile|dynamo|inductor|conv\w*|\w*event\w*"),
    "IDLE009": Evidence(
        kinds=(Kind.KERNEL, Kind.COLLECTIVE, Kind.COPY_H2D, Kind.COPY_D2H, Kind.COPY_OTHER, Kind.MEMSET)
    ),
    "IDLE010": Evidence(run={"steps": (), "checkpoint_after_ns": None}),
    "IDLE011": Evidence(known=SAMPLES, settings={"torch_threads": None}),
    "IDLE012": Evidence(names=r".+", names_both=True),
    "IDLE013": Evidence(run={"steps": (), "stacks": None}),
    "IDLE015": Evidence(run={"stacks": None}),
    "IDLE014": Evidence(kinds=(Kind.OPERATOR,)),
    "IDLE016": Evidence(run={"steps": (), "stacks": None}),
    "IDLE017": Evidence(names=r"evaluate_function"),
    "IDLE018": Evidence(names=r"aten::(?:gru|lstm|rnn_tanh|rnn_relu)"),
    "IDLE019": Evidence(run={"stacks": None}),
    "IDLE020": Evidence(names=r"aten::(?:linear|addmm|mm|conv2d)"),
    "IDLE021": Evidence(names=r": eval$"),
    "IDLE022": Evidence(names=r"aten::cat"),
    "MEM001": Evidence(memory=True, known=SAMPLES, run={"telemetry": None}),
    "MEM002": Evidence(memory=True, known=SAMPLES, run={"telemetry": None}),
    "MEM003": Evidence(memory=True, known=SAMPLES, run={"telemetry": None}),
    "MEM004": Evidence(names=r"(?i)cuda(?:Malloc|Free)\w*|hip(?:Malloc|Free)\w*"),
    "MEM005": Evidence(memory=True, known=SAMPLES, run={"telemetry": None}),
    "MEM006": Evidence(memory=True, known=SAMPLES, run={"telemetry": None}),
    "MEM007": Evidence(known=SAMPLES),
    "MEM008": Evidence(names=r"(?i)checkpoint|recompute|evaluate_function"),
}
