"""What people reported of slow trainings, rebuilt in small: each report names the cause, and nothing that is not."""

import shutil
import timeit
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from tests.children import run
from tests.recording.running import CAPTURE
from tests.shared import SHARED_REPORTS
from traceadvisor import load
from traceadvisor.api import write
from traceadvisor.comparing.inputs import compare_paths
from traceadvisor.model.report import RankedFinding, Report
from traceadvisor.model.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Right:
    """What a page on one of them has to say."""

    folder: str
    rules: tuple[str, ...] = ()
    """The first finding is one of these; without any, there is none."""

    forbidden: tuple[str, ...] = ()
    """Rules with findings that are false here."""

    says: tuple[str, ...] = ()
    """In its fix, its change, its lines or its places."""

    never: tuple[str, ...] = ()
    """On no page."""

    saves: tuple[float, float] | None = None
    """What was measured as a share of the step, from and to: the interval of the first finding contains some of it."""

    headline: str = ""
    """In the first paragraphs."""

    script: tuple[str, ...] = ()
    """With its arguments; a trace without any."""

    @property
    def name(self) -> str:
        """Folder and arguments."""
        return "-".join((self.folder, *self.script[1:]))


TRACES = (
    Right("batch32"),
    Right("batch64"),
    Right("ddp_accumulate", ("DIST016",), ("DIST004",), ("no_sync()",), saves=(0.207, 0.211)),
    Right("ddp_no_sync", (), ("DIST004", "DIST016")),
    Right("fsdp_one_stream", ("DIST017",), says=("set_separate_reduce_scatter_group",), saves=(0.132, 0.136)),
    Right("fsdp_two_streams", ("DIST009",), ("DIST017",)),
    Right("hybrid_ep", ("DIST010",), says=("all-to-all",), headline="all-to-all"),
    Right("mps", headline="waits for Apple's GPU (MPS) for 48%"),
    Right("sglang_steps", ("IDLE001",), ("IDLE002", "GPU008"), ("overlap scheduling",), never=("every hundred steps",)),
    Right("simple_fsdp", ("DIST017", "DIST009"), never=("DeepSpeed",)),
    Right(
        "zero_offload",
        ("GPU019",),
        ("H2D001", "DATA001"),
        ("Keep the optimizer's state on the GPU",),
        saves=(0.69, 0.9),
    ),
)

_PLAIN_WORKERS = ("DATA003", "DATA008", "DATA018")

SCRIPTS = (
    Right(
        "batch_sampler", ("DATA015",), ("DATA004", "DATA008"), ("slow_sampler.py:18",), script=("slow_sampler.py", "2")
    ),
    Right("big_random_sampler", ("DATA015",), ("IDLE006",), ("RandomSampler",), script=("huge_sampler.py",)),
    Right(
        "blas_threads_in_workers",
        ("DATA017", "DATA002"),
        says=("one thread",),
        script=("npblas.py", "0"),
    ),
    Right("blas_threads_in_workers", ("DATA017",), ("DATA003",), ("_NUM_THREADS",), script=("npblas.py", "2")),
    Right("cheap_samples", ("DATA001",), ("DATA002",), ("batch_size=None",), script=("cheap_workers.py", "0")),
    Right(
        "cheap_samples",
        ("DATA001",),
        ("DATA004", "DATA017", *_PLAIN_WORKERS),
        ("batch_size=None", "without workers"),
        saves=(0.5, 0.9),
        script=("cheap_workers.py", "2"),
    ),
    Right("lock_between_workers", ("DATA016",), _PLAIN_WORKERS, ("locked.py:8",), script=("locked.py", "4")),
    Right("model_train_each_step", ("IDLE004",), says=("walk.py:16",), saves=(0.5, 0.9), script=("walk.py",)),
    Right("model_train_each_step", ("IDLE004",), says=("walk_small.py:9",), script=("walk_small.py", "10")),
    Right("one_gc_in_a_short_run", ("DATA004", "DATA012"), ("IDLE005", "DATA018"), script=("frame.py", "2")),
    *(
        Right("optimizer_without_fused", ("GPU019",), says=("torch.compile",), script=("muon.py", kind))
        for kind in ("muon", "NAdam", "own", "Adafactor")
    ),
    Right("prefetch_thread", ("DATA002", "DATA003", "DATA004", "DATA012"), ("IDLE004",), script=("background.py", "0")),
    Right("profiler_left_on", ("IDLE007",), says=("schedule",), saves=(0.4, 0.6), script=("ownprof.py",)),
    Right("slower_and_slower", ("IDLE013",), says=("growing2.py:22",), script=("growing2.py",)),
    Right("slower_and_slower", ("IDLE013",), says=("set_flush_denormal",), script=("denormal.py",)),
    Right("uneven_samples", ("DATA018",), says=("in_order=False",), saves=(0.34, 0.51), script=("uneven.py", "in")),
    Right("validation_workers", ("DATA007",), ("IDLE010",), ("two_loaders.py:16",), script=("two_loaders.py",)),
)

TOKENISES = Right("tokenise_in_collate", ("DATA017",), ("DATA012",), ("Tokenise once",), script=("tok.py", "0"))
METRICS = Right("torchmetrics_each_step", ("IDLE004",), says=("lit.py:15",), saves=(0.55, 0.68), script=("lit.py",))


def _texts(ranked: RankedFinding) -> list[str]:
    fix = ranked.finding.fix
    places = (f"{place.file}:{place.line}" for place in ranked.finding.locations)
    return [fix.summary, fix.change or "", *places]


def _judge(report: Report, right: Right, folder: Path) -> None:
    """Fail if the page says something else than what is right."""
    page = write(report, folder, ["md"])["md"].read_text(encoding="utf-8")
    found = {row.finding.rule.id for row in report.findings}
    first = report.findings[0] if report.findings else None
    assert (first.finding.rule.id if first else None) in (right.rules or (None,))
    assert not found & set(right.forbidden)
    for text in right.says:
        assert first
        assert any(text in one for one in _texts(first)), (text, _texts(first))
    assert not [text for text in right.never if text in page]
    assert right.headline in page
    if right.saves:
        assert first
        saving, step_ns = first.finding.saving, first.step_ns or 1.0
        assert saving.low_ns / step_ns <= right.saves[1]
        assert saving.high_ns / step_ns >= right.saves[0]


@pytest.mark.parametrize("right", TRACES, ids=lambda right: right.name)
def test_the_page_of_a_trace_names_its_cause(right: Right, shared_reports: Path, tmp_path: Path) -> None:
    _judge(load(shared_reports / right.folder / "a.pt.trace.json.gz", processes=1), right, tmp_path)


def test_twice_the_samples_in_a_step_are_compared_per_sample(shared_reports: Path) -> None:
    base, head = (shared_reports / name / "a.pt.trace.json.gz" for name in ("batch32", "batch64"))
    (run,) = compare_paths([base], [head], processes=1).runs
    assert run.change
    assert run.change.verdict is not Verdict.SLOWER


def _captured(right: Right, folder: Path) -> None:
    """Capture a script in a copy of its folder, by a process of its own with threads of native libraries."""
    copy = folder / "script"
    shutil.copytree(SHARED_REPORTS / right.folder, copy)
    script, *arguments = right.script
    done = run(*CAPTURE, "-o", folder / "bundle", "--", script, *arguments, cwd=copy)
    assert done.returncode in {0, 3}, done.stderr
    _judge(load(folder / "bundle", processes=1), right, folder)


@pytest.mark.nightly("traceadvisor/rules", "traceadvisor/analysis", "traceadvisor/recording")
@pytest.mark.usefixtures("shared_reports")
@pytest.mark.parametrize("right", SCRIPTS, ids=lambda right: right.name)
def test_the_page_of_a_script_names_its_cause(right: Right, tmp_path: Path) -> None:
    if right.script == ("denormal.py",) and not _are_subnormal_numbers_slow():
        pytest.skip("this processor computes with subnormal numbers as fast as with others")
    _captured(right, tmp_path)


def _are_subnormal_numbers_slow() -> bool:
    def took_s(value: float) -> float:
        numbers, weights = torch.full((256, 256), value), torch.rand(256, 256)
        return min(timeit.repeat(lambda: numbers @ weights, number=20, repeat=5))

    return took_s(1e-40) > 2 * took_s(1.0)


@pytest.mark.nightly("traceadvisor/rules", "traceadvisor/analysis", "traceadvisor/recording")
@pytest.mark.usefixtures("shared_reports", "transformers")
def test_a_tokenizer_in_collate_may_run_once_before(tmp_path: Path) -> None:
    _captured(TOKENISES, tmp_path)


@pytest.mark.nightly("traceadvisor/rules", "traceadvisor/analysis", "traceadvisor/recording")
@pytest.mark.usefixtures("shared_reports", "lightning")
def test_metrics_of_each_step_are_named_by_their_line(tmp_path: Path) -> None:
    _captured(METRICS, tmp_path)


@pytest.mark.usefixtures("shared_reports")
def test_each_public_report_has_a_test() -> None:
    tested = {right.folder for right in (*TRACES, *SCRIPTS, TOKENISES, METRICS)}
    assert tested == {path.name for path in SHARED_REPORTS.iterdir() if path.is_dir()}
