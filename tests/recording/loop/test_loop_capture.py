"""Real training loops with torch, captured in this process."""

import gzip
import json
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
import torch.autograd.profiler_legacy
from torch import nn
from torch._dynamo.utils import counters
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, TensorDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

import traceadvisor
from tests.recording.running import manifest, settings, steps, traces
from traceadvisor.bundle.layout import FileKind, Schedule
from traceadvisor.bundle.settings import RECORDED_ENV
from traceadvisor.errors import UsageError
from traceadvisor.model.location import Role
from traceadvisor.model.run import StepState
from traceadvisor.recording.capture import Capture
from traceadvisor.recording.loop import held_events, loop_capture
from traceadvisor.recording.loop.own_profiles import ProfiledSteps
from traceadvisor.recording.options import CaptureOptions
from traceadvisor.recording.script.own_code import is_own_frame
from traceadvisor.recording.stacks.frames import PACKAGE

SHORT = Schedule(skip_first=1, wait=1, warmup=1, active=8, repeat=1)
TRAIN_STEPS = 16


@contextmanager
def captured(folder: Path, schedule: Schedule = SHORT, **options: Any) -> Iterator[Capture]:
    with Capture(CaptureOptions(schedule, folder=folder / "bundle", **options)) as capture:
        yield capture


class Training:
    """A linear model on random data."""

    def __init__(self, batches: int = TRAIN_STEPS, **arguments: Any) -> None:
        data = TensorDataset(torch.randn(4 * batches, 8), torch.randn(4 * batches, 1))
        self.loader = DataLoader(data, batch_size=4, **arguments)
        self.model = nn.Linear(8, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def loss(self, batch: list[torch.Tensor]) -> torch.Tensor:
        inputs, targets = batch
        return nn.functional.mse_loss(self.model(inputs), targets)

    def learn(self, batch: list[torch.Tensor]) -> None:
        self.loss(batch).backward()  # type: ignore[no-untyped-call]

    def epoch(self) -> None:
        for batch in self.loader:
            self.learn(batch)
            self.optimizer.step()


def document(bundle: Path) -> dict[str, Any]:
    (path,) = traces(bundle)
    loaded: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return loaded


def marks(bundle: Path) -> list[int]:
    names = [event["name"] for event in document(bundle)["traceEvents"] if event.get("cat") == "user_annotation"]
    return sorted(int(name.removeprefix("ProfilerStep#")) for name in names if name.startswith("ProfilerStep#"))


def states(bundle: Path) -> list[str]:
    return [row.state.value for row in steps(bundle)]


def test_a_loop_is_recorded_step_by_step(tmp_path: Path) -> None:
    with captured(tmp_path):
        Training().epoch()
    bundle = tmp_path / "bundle"
    assert states(bundle)[:12] == ["stalled"] * 2 + ["warmup"] + states(bundle)[3:4] + ["recorded"] * 8
    timed = steps(bundle)
    assert marks(bundle) == [
        row.index for row in timed if row.state in {StepState.SETTLING, StepState.RECORDED} and row.index < 12
    ]
    assert all(row.fetches == 1 and 0 < row.loader_ns < row.duration_ns for row in timed)
    entries = {file.kind: file for file in manifest(bundle).files}
    absent = {FileKind.LOADER_STACKS, FileKind.MEMORY}  # it has no loader workers, and no device
    assert entries.keys() == set(FileKind) - absent
    assert (entries[FileKind.TRACE].rank, entries[FileKind.TRACE].cycle) == (0, 0)


def test_a_recording_holds_what_a_reader_needs(tmp_path: Path) -> None:
    with captured(tmp_path):
        Training().epoch()
    loaded = document(tmp_path / "bundle")
    events = loaded["traceEvents"]
    categories = {event.get("cat") for event in events}
    assert {"cpu_op", "user_annotation", "python_function", "cpu_instant_event", "fwdbwd", "Trace"} <= categories
    assert {event["ph"] for event in events if event["name"] == "[memory]"} == {"i"}
    assert loaded.keys() >= {"baseTimeNanoseconds", "deviceProperties", "with_stack", "record_shapes"}
    assert any("Input Dims" in event.get("args", {}) for event in events)
    names = {event["name"] for event in events}
    assert {"enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "Optimizer.step#SGD.step"} <= names


def test_stacks_memory_and_shapes_can_be_left_out(tmp_path: Path) -> None:
    with captured(tmp_path, stacks=False, memory=False, shapes=False):
        Training().epoch()
    events = document(tmp_path / "bundle")["traceEvents"]
    assert not {"python_function", "cpu_instant_event"} & {event.get("cat") for event in events}
    assert not any("Input Dims" in event.get("args", {}) for event in events)


def test_marks_nest_with_what_torch_annotates(tmp_path: Path) -> None:
    with captured(tmp_path):
        Training().epoch()
    annotations = [
        (event["ts"], event["ts"] + event["dur"])
        for event in document(tmp_path / "bundle")["traceEvents"]
        if event.get("cat") == "user_annotation"
    ]
    for start, end in annotations:
        assert not any(start < other < end < other_end for other, other_end in annotations)


def test_accumulation_and_validation_are_distinguished(tmp_path: Path) -> None:
    training, validation = Training(batches=64), Training(batches=3)
    with captured(tmp_path):
        for number, batch in enumerate(training.loader, 1):
            training.learn(batch)
            if number % 4 == 0:
                training.optimizer.step()
        with torch.no_grad():
            for batch in validation.loader:
                training.loss(batch)
        training.epoch()
    rows = steps(tmp_path / "bundle")
    assert [row.fetches for row in rows[:16]] == [4] * 16
    assert [(row.state, row.fetches) for row in rows[16:19]] == [(StepState.OTHER, count) for count in (0, 3, 0)]
    assert len(rows) == 16 + 3 + 64


def test_a_step_that_a_scaler_skips_is_a_step(tmp_path: Path) -> None:
    training = Training()
    scaler = torch.amp.GradScaler("cpu")
    with captured(tmp_path):
        for number, batch in enumerate(training.loader):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = training.loss(batch)
            scaler.scale(loss * (torch.inf if number % 2 else 1)).backward()  # type: ignore[no-untyped-call]
            scaler.step(training.optimizer)
            scaler.update()
            training.optimizer.zero_grad()
    assert len(steps(tmp_path / "bundle")) == TRAIN_STEPS
    assert "other" not in states(tmp_path / "bundle")
    found = settings(tmp_path / "bundle")
    assert (found.grad_scaler, found.autocast_dtype) == (True, "bfloat16")


def test_a_loop_without_loader_ends_its_steps_outside_the_optimizer(tmp_path: Path) -> None:
    training = Training()
    batch = next(iter(training.loader))
    with captured(tmp_path):
        for _ in range(2 * TRAIN_STEPS + 1):
            training.learn(batch)
            training.optimizer.step()
    assert len(steps(tmp_path / "bundle")) == 2 * TRAIN_STEPS
    assert len(marks(tmp_path / "bundle")) >= 9
    events = document(tmp_path / "bundle")["traceEvents"]
    optimizing = [(e["ts"], e["ts"] + e["dur"]) for e in events if str(e["name"]).startswith("Optimizer.step#")]
    boundaries = [e["ts"] for e in events if str(e["name"]).startswith("ProfilerStep#")]
    assert not any(start <= boundary <= end for start, end in optimizing for boundary in boundaries)


def test_the_script_may_mark_the_end_of_steps(tmp_path: Path) -> None:
    training = Training()
    with traceadvisor.capture(tmp_path / "bundle", skip_first=1, wait=1, warmup=1) as capture:
        for batch in training.loader:
            training.learn(batch)
            training.optimizer.step()
            training.loss(batch)
            capture.step()
    rows = steps(tmp_path / "bundle")
    assert len(rows) == TRAIN_STEPS
    assert capture.captured is not None
    assert capture.captured.recorded_steps == 8


def test_a_recording_of_steps_that_proved_to_be_none_is_removed_and_not_counted(tmp_path: Path) -> None:
    training = Training(batches=2 * TRAIN_STEPS)
    with traceadvisor.capture(tmp_path / "bundle", skip_first=1, wait=1, warmup=1) as capture:
        training.epoch()
        (early,) = traces(tmp_path / "bundle")
        for batch in training.loader:
            training.learn(batch)
            training.optimizer.step()
            capture.step()
    assert capture.captured is not None
    assert (capture.captured.recorded_steps, capture.captured.steps) == (8, 2 * TRAIN_STEPS)
    assert [path.name for path in traces(tmp_path / "bundle")] == [
        one.path for one in manifest(tmp_path / "bundle").files if one.kind is FileKind.TRACE
    ]
    assert not early.exists()
    assert "recording-rejected" in [note.code for note in capture.captured.notes]


def test_settings_are_recorded(tmp_path: Path) -> None:
    training = Training(num_workers=2, persistent_workers=True, shuffle=True)
    with captured(tmp_path):
        training.epoch()
    found = settings(tmp_path / "bundle")
    assert found.loader
    assert (found.loader.worker_count, found.loader.prefetch_factor, found.loader.persistent_workers) == (2, 2, True)
    assert (found.loader.batch_size, found.loader.dataset_length) == (4, 64)
    location = found.loader.location
    assert location
    assert (location.file, location.function) == ("tests/recording/loop/test_loop_capture.py", "epoch")
    assert Path(__file__).read_text().splitlines()[location.line - 1].strip() == "for batch in self.loader:"
    assert (found.optimizer, found.optimizer_fused, found.optimizer_foreach) == ("SGD", None, None)
    assert (found.loader.sample_count, found.loader.batch_count, found.loader.sampler) == (64, 16, "RandomSampler")
    assert found.torch_version == torch.__version__
    assert found.cpu_count
    assert found.torch_threads == torch.get_num_threads()
    written = json.loads((tmp_path / "bundle" / "settings.0.json").read_bytes())
    assert written["loader"]["shuffled"] is True
    assert (written["optimizer"]["parameter_count"], written["optimizer"]["parameter_bytes"]) == (9, 36)


def test_the_parameters_of_all_optimizers_are_counted_once(tmp_path: Path) -> None:
    """As of a table with an optimizer of its own: `compare` then knows the model with one optimizer and with two."""
    training = Training()
    weight = next(iter(training.model.parameters()))
    other = torch.optim.SGD([weight, torch.nn.Parameter(torch.ones(5))])
    with captured(tmp_path):
        for batch in training.loader:
            training.learn(batch)
            training.optimizer.step()
            other.step()
    written = json.loads((tmp_path / "bundle" / "settings.0.json").read_bytes())
    assert written["optimizer"]["parameter_count"] == 9 + 5


def test_each_rank_records_the_samples_of_its_own_sampler(tmp_path: Path) -> None:
    data = TensorDataset(torch.randn(50, 8), torch.randn(50, 1))
    sampler: DistributedSampler[Any] = DistributedSampler(data, num_replicas=4, rank=1)
    training = Training(batches=1)
    training.loader = DataLoader(data, batch_size=4, sampler=sampler)
    with captured(tmp_path):
        training.epoch()
    found = settings(tmp_path / "bundle").loader
    assert found
    assert (found.dataset_length, found.sample_count, found.batch_count) == (50, 13, 4)
    assert found.sampler == "DistributedSampler"


def test_a_dataset_without_length_is_not_asked_for_its_length(tmp_path: Path) -> None:
    class Endless(IterableDataset[Any]):
        def __iter__(self) -> Iterator[list[torch.Tensor]]:
            yield from ([torch.randn(8), torch.randn(1)] for _ in range(40))

        def __len__(self) -> int:
            return 3  # wrong, of which torch warns whoever asks for the loader's length

    training = Training(batches=1)
    training.loader = DataLoader(Endless(), batch_size=4)
    with captured(tmp_path):
        training.epoch()
    found = settings(tmp_path / "bundle").loader
    assert found
    assert (found.sample_count, found.batch_count) == (None, None)


@pytest.mark.parametrize("workers", [0, 1])
def test_the_first_step_of_each_epoch_has_the_time_to_start_it(workers: int, tmp_path: Path) -> None:
    training = Training(batches=5, num_workers=workers)
    with captured(tmp_path):
        for _ in range(3):
            training.epoch()
    begun = [row.index for row in steps(tmp_path / "bundle") if row.loader_start_ns]
    assert begun == [0, 6, 12], "between epochs lies a row that is no step"


def test_a_loop_over_another_loader_starts_no_training_epoch(tmp_path: Path) -> None:
    training, validation = Training(batches=6), Training(batches=2)
    with captured(tmp_path):
        training.epoch()
        with torch.no_grad():
            for batch in validation.loader:
                training.loss(batch)
        training.epoch()
    rows = steps(tmp_path / "bundle")
    assert [(row.state is StepState.OTHER, bool(row.loader_start_ns)) for row in rows] == [
        *[(False, True), *[(False, False)] * 5],
        *[(True, False), (True, True), (True, False)],
        *[(False, True), *[(False, False)] * 5],
    ]


@pytest.mark.nightly("traceadvisor/recording")
@pytest.mark.parametrize("mode", [torch.autograd.detect_anomaly, torch.autograd.set_detect_anomaly])
@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")
def test_anomaly_detection_is_recorded_even_if_it_is_off_again(mode: Any, tmp_path: Path) -> None:
    training = Training()
    with captured(tmp_path):
        for batch in training.loader:
            with mode(True):  # noqa: FBT003  # as people write it
                training.learn(batch)
            training.optimizer.step()
    found = settings(tmp_path / "bundle")
    assert found.detect_anomaly is True
    (place,) = (one.place for one in found.constructed if one.role is Role.ANOMALY)
    assert "with mode(True)" in Path(__file__).read_text().splitlines()[place.line - 1]


def test_anomaly_detection_is_recorded_as_off_if_never_enabled(tmp_path: Path) -> None:
    with captured(tmp_path):
        Training().epoch()
    found = settings(tmp_path / "bundle")
    assert (found.detect_anomaly, found.own_profiler_share, found.cuda_sync_debug_mode) == (False, 0.0, None)


def test_only_a_few_environment_variables_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in RECORDED_ENV:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    monkeypatch.setenv("API_TOKEN", "secret")
    with captured(tmp_path):
        Training().epoch()
    assert settings(tmp_path / "bundle").environment == {"CUDA_LAUNCH_BLOCKING": "1"}


def test_precision_set_in_the_new_way_is_read(tmp_path: Path) -> None:
    matmul = torch.backends.cuda.matmul
    if not hasattr(matmul, "fp32_precision"):
        pytest.skip("this torch has the old setting only")
    matmul.fp32_precision = "tf32"
    with captured(tmp_path):
        Training().epoch()
    assert settings(tmp_path / "bundle").matmul_tf32 is True


def test_a_profiler_of_the_script_is_left_alone(tmp_path: Path) -> None:
    training = Training()
    with captured(tmp_path), torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as own:
        training.epoch()
    assert any(event.key.startswith("Optimizer.step") for event in own.key_averages())
    bundle = tmp_path / "bundle"
    assert [note.code for note in manifest(bundle).notes] == ["own-profiler"]
    assert settings(bundle).own_profiler_share == 1.0
    assert states(bundle) == ["plain"] * TRAIN_STEPS
    assert not traces(bundle)


def test_a_compilers_profiler_does_not_count_as_the_scripts(tmp_path: Path) -> None:
    with captured(tmp_path):
        exec("profiler = torch.profiler.profile()", {"__name__": "torch._inductor.runtime", "torch": torch})  # noqa: S102  # a frame of that module
        Training().epoch()
    assert manifest(tmp_path / "bundle").notes == ()
    assert traces(tmp_path / "bundle")


def test_a_profiler_made_within_the_window_is_left_alone(tmp_path: Path) -> None:
    training = Training()
    with captured(tmp_path):
        for number, batch in enumerate(training.loader):
            training.learn(batch)
            training.optimizer.step()
            if number == 6:
                with torch.autograd.profiler.profile() as own:
                    training.loss(batch)
                assert own.key_averages()
    assert [note.code for note in manifest(tmp_path / "bundle").notes] == ["own-profiler"]


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]), id="profile"),
        pytest.param(torch.autograd.profiler.emit_itt, id="emit_itt"),
        pytest.param(torch.autograd.profiler_legacy.profile, id="legacy"),
    ],
)
def test_a_profiler_made_before_the_capture_is_left_alone(tmp_path: Path, make: Callable[[], Any]) -> None:
    """torch refuses to start some of them while another one runs."""
    training, own = Training(), make()
    with captured(tmp_path):
        for number, batch in enumerate(training.loader):
            training.learn(batch)
            training.optimizer.step()
            if number == 6:
                with own:
                    training.loss(batch)
    assert [note.code for note in manifest(tmp_path / "bundle").notes] == ["own-profiler"]
    assert len(steps(tmp_path / "bundle")) == TRAIN_STEPS


@pytest.mark.nightly("traceadvisor/recording")
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own compiler uses what torch deprecates
def test_compiled_models_and_optimizers_still_run(tmp_path: Path) -> None:
    training = Training()
    model = torch.compile(training.model, backend="eager", fullgraph=True)

    @torch.compile(backend="eager")
    def compiled_step() -> None:
        training.optimizer.step()

    with captured(tmp_path):
        for inputs, targets in training.loader:
            nn.functional.mse_loss(model(inputs), targets).backward()  # type: ignore[no-untyped-call]
            training.optimizer.step()
        compiled_step()
    assert len(steps(tmp_path / "bundle")) == TRAIN_STEPS


@pytest.mark.parametrize(("stacks", "has_stacks"), [(None, False), (True, True)])
def test_compiled_training_is_recorded_without_stacks_unless_asked(
    stacks: bool | None,  # noqa: FBT001
    has_stacks: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    training = Training()
    training.model = torch.compile(training.model, backend="eager")  # type: ignore[assignment]
    with captured(tmp_path, stacks=stacks):
        training.epoch()
    bundle = tmp_path / "bundle"
    assert ("python_function" in {event.get("cat") for event in document(bundle)["traceEvents"]}) == has_stacks
    notes = [note.message for note in manifest(bundle).notes if note.code == "compiled"]
    assert ["--stacks" in note for note in notes] == [True] * (not has_stacks)


def test_an_error_of_the_recorder_never_reaches_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object) -> None:
        raise RuntimeError("no profiler today")

    monkeypatch.setattr("traceadvisor.recording.loop.profiler.TorchRecorder.start", broken)
    training = Training()
    with captured(tmp_path):
        training.epoch()
    notes = [note for note in manifest(tmp_path / "bundle").notes if note.code == "capture-failed"]
    assert "no profiler today" in notes[0].message
    assert steps(tmp_path / "bundle")


def test_torch_is_left_as_it_was_found(tmp_path: Path) -> None:
    before = (_BaseDataLoaderIter.__next__, DataLoader.__iter__, torch.optim.Optimizer.profile_hook_step)
    with captured(tmp_path), pytest.raises(ValueError, match="mine"):
        raise ValueError("mine")
    assert (_BaseDataLoaderIter.__next__, DataLoader.__iter__, torch.optim.Optimizer.profile_hook_step) == before


def test_a_folder_of_another_capture_is_refused(tmp_path: Path) -> None:
    with captured(tmp_path):
        pass
    path = tmp_path / "bundle" / "manifest.json"
    path.write_text(path.read_text().replace('"started_ns": 1', '"started_ns": 2'))
    with pytest.raises(UsageError, match="already holds a capture"), captured(tmp_path):
        pass


def test_loops_of_other_threads_are_not_the_training_loop(tmp_path: Path) -> None:
    background = threading.Thread(target=Training().epoch)
    with captured(tmp_path):
        background.start()
        background.join()
        Training(batches=3).epoch()
    assert sum(row.fetches for row in steps(tmp_path / "bundle")) == 3


def test_a_step_outside_the_recording_calls_few_functions_of_this_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Counter[str]()
    monkeypatch.setattr(ProfiledSteps, "stepped", lambda _: None)  # with a profile function, no steps are held
    monkeypatch.setattr(loop_capture, "MOST_STEPS", 64)
    monkeypatch.setattr(held_events, "LONGEST_NS", 10**12)  # on a busy machine, too

    def called(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and (is_own_frame(frame) or frame.f_code.co_filename.startswith(PACKAGE)):
            calls[frame.f_code.co_name] += 1

    with captured(tmp_path, Schedule(skip_first=10**6, wait=0, warmup=1, active=8, repeat=1)):
        training = Training(batches=300)
        batches = iter(training.loader)
        for number, batch in enumerate(batches):
            if number == 100:  # what only the first steps need is over
                sys.setprofile(called)
            training.learn(batch)
            training.optimizer.step()
        sys.setprofile(None)
    assert calls["may_note"] == 200
    assert sum(calls.values()) < 12 * 200, calls
    assert calls["backward"] == calls["_begins"] == 0
    assert len(steps(tmp_path / "bundle")) == 300


@pytest.mark.filterwarnings("ignore")  # of torch about itself
def test_nothing_of_this_package_is_compiled_with_an_optimizer_s_step(tmp_path: Path) -> None:
    with captured(tmp_path, Schedule(skip_first=10**6, wait=0, warmup=1, active=8, repeat=1)):
        training = Training(batches=4)
        compiled = torch.compile(lambda: training.optimizer.step(), backend="eager")  # noqa: PLW0108  # as scripts do
        before = counters["frames"]["total"]
        for batch in training.loader:
            training.learn(batch)
            compiled()
    assert counters["frames"]["total"] - before < 40  # of the tracker, hundreds follow


@pytest.mark.nightly("traceadvisor/recording")
def test_late_and_direct_events_of_real_loops_make_the_same_steps(tmp_path: Path) -> None:
    def train(name: str) -> list[tuple[int, bool, bool]]:
        folder = tmp_path / name
        with captured(folder, Schedule(skip_first=10**6, wait=0, warmup=1, active=8, repeat=1)):
            training = Training(batches=40, num_workers=1, persistent_workers=True)
            for _ in range(4):
                training.epoch()
                with torch.no_grad():
                    for batch in training.loader:
                        training.loss(batch)
        assert settings(folder / "bundle").own_profiler_share == 0
        return [
            (row.fetches, (row.loader_start_ns or 0) > 0, row.state is StepState.OTHER)
            for row in steps(folder / "bundle")
        ]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(held_events, "LONGEST_NS", 0)
        direct = train("direct")
    assert sum(not is_other for _, _, is_other in direct) == 160
    assert train("late") == direct
