"""Which lines construct the objects of real trainings, captured in this process."""

from __future__ import annotations

import copy
import inspect
import os
import pickle
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from tests.recording.running import settings
from traceadvisor.bundle.layout import Schedule
from traceadvisor.bundle.settings import RecordedSettings, decode_settings, encode_settings
from traceadvisor.model.location import Constructed, Location, PlaceKind, Role
from traceadvisor.recording.capture import Capture
from traceadvisor.recording.loop import makers
from traceadvisor.recording.options import CaptureOptions
from traceadvisor.text.cleaning import withholding

SHORT = Schedule(skip_first=1, wait=1, warmup=1, active=4, repeat=1)
DATA = TensorDataset(torch.randn(60, 8), torch.randn(60, 1))


def line_here() -> int:
    """The line of the caller."""
    frame = inspect.currentframe()
    assert frame
    assert frame.f_back
    return frame.f_back.f_lineno


class Net(nn.Module):
    """Makes its parts in a method of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.body = self.made()
        self.head = nn.Linear(8, 1)

    def made(self) -> nn.Module:
        return nn.Sequential(nn.Linear(8, 8), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))  # type: ignore[no-any-return]


MAKE = "def make(data): return DataLoader(data, 4)\n"
LIBRARY = Path("/x/site-packages/somelibrary/loading.py")


def make_of(file: Path) -> Callable[[Any], Any]:
    """The function of a module that makes a loader."""
    module: dict[str, Any] = {"__name__": f"{file.parent.name}.{file.stem}", "DataLoader": DataLoader}
    exec(compile(MAKE, str(file), "exec"), module)  # noqa: S102  # of a file that need not exist
    make: Callable[[Any], Any] = module["make"]
    return make


Training = tuple[Any, nn.Module, torch.optim.Optimizer]


def constructed(folder: Path, make: Callable[[], Training], scaler: Any = None) -> dict[Role, Constructed]:
    """What a capture of a training records of its constructors."""
    with Capture(CaptureOptions(SHORT, folder=folder / "bundle", stacks=False)):
        loader, model, optimizer = make()
        scaler = scaler and scaler()
        for inputs, targets in loader:
            loss = nn.functional.mse_loss(model(inputs), targets)
            if scaler:
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
            else:
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
    found = {one.role: one for one in settings(folder / "bundle").constructed}
    assert all(one.place.kind is PlaceKind.CONSTRUCTED for one in found.values())
    return found


def call_of(one: Constructed) -> str:
    """The recorded call."""
    assert one.source
    *first, last = one.source.split("\n")
    return "\n".join((*first, last[: one.end]))[one.start :]


def test_the_lines_of_all_objects_are_recorded_with_their_calls(tmp_path: Path) -> None:
    lines: dict[Role, int] = {}

    def make() -> Training:
        lines[Role.LOADER] = line_here() + 1
        loader = DataLoader(
            DATA,
            batch_size=4,  # small
        )
        model, lines[Role.MODEL] = nn.DataParallel(Net()), line_here()
        optimizer, lines[Role.OPTIMIZER] = torch.optim.AdamW(model.parameters(), lr=1e-3), line_here()
        return loader, model, optimizer

    found = constructed(tmp_path, make, scaler=lambda: torch.amp.GradScaler("cpu"))
    names = {role: one.name for role, one in found.items()}
    scaler = {Role.SCALER: "GradScaler"}
    assert names == {Role.LOADER: "DataLoader", Role.MODEL: "Net", Role.OPTIMIZER: "AdamW", **scaler}
    assert {role: found[role].place.line for role in lines} == lines
    assert {found[role].place.function for role in lines} == {"make"}
    assert {one.through for one in found.values()} == {None}
    assert call_of(found[Role.LOADER]).splitlines()[-2:] == ["            batch_size=4,  # small", "        )"]
    assert call_of(found[Role.MODEL]) == "Net()"
    assert call_of(found[Role.OPTIMIZER]) == "torch.optim.AdamW(model.parameters(), lr=1e-3)"
    assert call_of(found[Role.SCALER]) == 'torch.amp.GradScaler("cpu")'


def test_each_optimizer_that_steps_has_its_line(tmp_path: Path) -> None:
    with Capture(CaptureOptions(SHORT, folder=tmp_path / "bundle", stacks=False)):
        loader, model, first = _trained(DataLoader(DATA, batch_size=4))
        second, line = torch.optim.Adam(model.parameters()), line_here()
        torch.optim.SGD(model.parameters())  # never steps
        for inputs, targets in loader:
            nn.functional.mse_loss(model(inputs), targets).backward()  # type: ignore[no-untyped-call]
            first.step()
            second.step()
    found = [one for one in settings(tmp_path / "bundle").constructed if one.role is Role.OPTIMIZER]
    assert len(found) == 2
    assert (found[1].name, found[1].place.line) == ("Adam", line)


def test_a_subclass_is_constructed_where_it_calls_torchs_constructor(tmp_path: Path) -> None:
    class Own(DataLoader[Any]):
        def __init__(self, data: Dataset[Any]) -> None:
            super().__init__(data, batch_size=4)

    found = constructed(tmp_path, lambda: _trained(Own(DATA)))
    assert call_of(found[Role.LOADER]) == "super().__init__(data, batch_size=4)"
    assert found[Role.LOADER].name == "Own"


def _trained(loader: Any, model: nn.Module | None = None) -> Training:
    model = nn.Linear(8, 1) if model is None else model
    return loader, model, torch.optim.SGD(model.parameters(), lr=1e-3)


def test_a_loader_that_a_library_makes_of_another_one_is_constructed_where_that_is(tmp_path: Path) -> None:
    def make() -> Training:
        loader = DataLoader(DATA, batch_size=4)
        return _trained(make_of(LIBRARY)(loader.dataset))

    assert call_of(constructed(tmp_path, make)[Role.LOADER]) == "DataLoader(DATA, batch_size=4)"


def test_a_library_that_constructs_is_named(tmp_path: Path) -> None:
    found = constructed(tmp_path, lambda: _trained(make_of(LIBRARY)(DATA)))[Role.LOADER]
    assert found.through == "somelibrary"
    assert call_of(found) == "make_of(LIBRARY)(DATA)"


def test_an_object_that_is_copied_has_no_line(tmp_path: Path) -> None:
    def make() -> Training:
        loader, model, optimizer = _trained(DataLoader(DATA, batch_size=4))
        model, optimizer = copy.deepcopy((model, optimizer))
        return loader, model, optimizer

    assert constructed(tmp_path, make).keys() == {Role.LOADER}


def test_a_call_with_a_secret_is_recorded_without_its_source(tmp_path: Path) -> None:
    class Opened(TensorDataset):
        def __init__(self, _token: str) -> None:
            super().__init__(*DATA.tensors)

    found = constructed(
        tmp_path, lambda: _trained(DataLoader(Opened("ghp_0123456789abcdefABCDEF0123456789abcd"), batch_size=4))
    )
    assert found[Role.LOADER].source is None
    assert b"ghp_" not in (tmp_path / "bundle" / "settings.0.json").read_bytes()


def test_a_call_with_a_secret_of_the_command_is_written_without_its_source() -> None:
    place = Location("train.py", 3, "main", PlaceKind.CONSTRUCTED)
    found = Constructed(Role.LOADER, "DataLoader", place, source="DataLoader(Opened('plainsecret'))", end=33)
    with withholding(["plainsecret"]):
        written = encode_settings(RecordedSettings(constructed=(found,)))
    assert decode_settings(written).constructed == (Constructed(Role.LOADER, "DataLoader", place, end=33),)


def test_a_file_that_changed_since_the_start_is_not_read(tmp_path: Path) -> None:
    script = tmp_path / "own.py"
    script.write_text(MAKE)
    assert call_of(constructed(tmp_path / "one", lambda: _trained(make_of(script)(DATA)))[Role.LOADER])
    later = time.time() + 60
    os.utime(script, (later, later))
    found = constructed(tmp_path / "two", lambda: _trained(make_of(script)(DATA)))[Role.LOADER]
    assert (found.place.line, found.source) == (1, None)


def test_the_script_sees_the_same_constructors(tmp_path: Path) -> None:
    seen = [
        inspect.signature(kind.__init__) for kind in (DataLoader, torch.optim.Adam, torch.amp.GradScaler, nn.Module)
    ]
    with Capture(CaptureOptions(SHORT, folder=tmp_path / "bundle")):
        kinds = (DataLoader, torch.optim.Adam, torch.amp.GradScaler, nn.Module)
        assert [inspect.signature(kind.__init__) for kind in kinds] == seen
        model = Net()
        optimizer = torch.optim.Adam(model.parameters())
        assert vars(model).keys() == vars(nn.Module()).keys()
        again = pickle.loads(pickle.dumps(optimizer))  # noqa: S301  # made above
        assert again.state_dict() == optimizer.state_dict()
        assert b"traceadvisor" not in pickle.dumps((optimizer, torch.amp.GradScaler("cpu"), DataLoader(DATA)))
        gone = weakref.ref(model)
        del model, optimizer, again
        assert gone() is None, "no object lives longer"


def test_a_large_model_is_not_slower_to_construct(tmp_path: Path) -> None:
    def took_s() -> float:
        begin = time.thread_time()
        nn.Sequential(*(nn.Linear(1, 1) for _ in range(1000)))
        return time.thread_time() - begin

    plain_s = min(took_s() for _ in range(3))
    with Capture(CaptureOptions(SHORT, folder=tmp_path / "bundle", stacks=False)):
        captured_s = min(took_s() for _ in range(3))
    assert captured_s - plain_s < 0.15, "at most 150 us of CPU time for each of a thousand modules"


def test_a_compiled_model_is_named_by_what_is_in_it(tmp_path: Path) -> None:
    def make() -> Training:
        return _trained(DataLoader(DATA, batch_size=4), torch.compile(Net(), backend="eager"))  # type: ignore[arg-type]

    assert call_of(constructed(tmp_path, make)[Role.MODEL]) == "Net()"


def test_what_a_script_puts_in_place_of_a_constructor_before_a_capture_starts_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = vars(torch.amp.GradScaler)["__init__"]
    monkeypatch.setattr(torch.amp.GradScaler, "__init__", plain)  # restored at the end
    makers.watch()
    watched, calls = vars(torch.amp.GradScaler)["__init__"], list[object]()

    def own(self: torch.amp.GradScaler, *arguments: object) -> None:
        calls.append(self)
        watched(self, *arguments)

    torch.amp.GradScaler.__init__ = own  # type: ignore[assignment,method-assign]
    makers.remembered()
    torch.amp.GradScaler("cpu")
    assert len(calls) == 1
    assert watched is not plain


class Tables(nn.Module):
    """Three tables of one size in a line, and one with sparse gradients."""

    line = 0

    def __init__(self) -> None:
        super().__init__()
        Tables.line = line_here() + 1
        self.users = nn.ModuleList(nn.Embedding(40, 4) for _ in range(3))
        self.items = nn.Embedding(90, 2, sparse=True)
        self.head = nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x) + self.users[0](torch.zeros(1, dtype=torch.long)).sum()  # type: ignore[no-any-return]


def test_tables_with_dense_gradients_are_known_by_line_and_size(tmp_path: Path) -> None:
    def make() -> Training:
        model = Tables()
        return DataLoader(DATA, 4), model, torch.optim.SGD(model.head.parameters(), lr=0.1)

    found = constructed(tmp_path, make)[Role.TABLE]
    assert (found.name, found.place.line, found.rows, found.width) == ("Embedding", Tables.line, 40, 4)
