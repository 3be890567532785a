"""No text about people and machines is in a copy."""

import gzip
import json
import re
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
import pytest

from tests.scrubbing.private_capture import (
    CHECKSUMS,
    HOME,
    HOST,
    PRIVATE,
    private_trace,
    write_private_capture,
)
from traceadvisor.api import load, scrub
from traceadvisor.bundle.layout import MANIFEST, private_fields
from traceadvisor.bundle.stacks import StackRecord
from traceadvisor.comparing.inputs import compare_paths
from traceadvisor.model.run import TimedBatch, TimedStep
from traceadvisor.parsing.json.events import EventArgs
from traceadvisor.rendering.content.comparison.sentences import UNKNOWN_CODE, changed_sentence
from traceadvisor.scrubbing.texts import Texts
from traceadvisor.scrubbing.trace import SCRUBBED_ARGUMENTS


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    scrub(write_private_capture(tmp_path / "zqrun"), tmp_path / "copy")
    return tmp_path / "copy"


def contents(folder: Path) -> dict[str, str]:
    packed = {path.name: path.read_bytes() for path in folder.iterdir()}
    return {
        name: (gzip.decompress(content) if name.endswith(".gz") else content).decode()
        for name, content in packed.items()
    }


def test_a_copied_capture_holds_nothing_private(copy: Path) -> None:
    for name, text in contents(copy).items():
        assert PRIVATE not in name.lower()
        assert PRIVATE not in text.lower(), (name, text[max(text.lower().find(PRIVATE) - 80, 0) :][:160])


def test_the_private_capture_tells_something_in_each_of_its_files(tmp_path: Path) -> None:
    folder = write_private_capture(tmp_path / "zqrun")
    assert all(PRIVATE in text for text in contents(folder).values())


POSITIONS = (
    *(
        "{}",
        "{}:0 forward",
        "forward {}",
        "on {}.",
        "({})",
        "[{}]",
        "<{}>",
        "'{}'",
        '"{}"',
        "{},{}",
        "host={}",
        "at: {}",
    ),
    *("{} {}", "a;{};b", "x|{}|y", "{}!", "#{}", "-> {}", "run\t{}", "{{{}}}"),
)
"""Where a word may stand in the name of a range."""

WORDS = (
    *(HOST, f"{HOST}.zqlab.internal", "db3.cluster.internal", "zqada", "zqargument", "zqada@zqmail.org"),
    *(f"{HOME}/data", "/mnt/zqproject/run7", "https://zqserver/x", "10.11.12.13", "2001:db8::17", "fe80::1:2%eth0"),
    *(
        "//zqnet/share/x",
        "./zqdir/sub/zqfile.bin",
        r"..\zqdir\zqfile",
        "$HOME/zqdir/x.py",
        "%HOME%/zqdir",
        "zqdata/x.bin",
    ),
    *("zqdata/private/x.py", "00:1B:44:11:3A:B7", "zqworker@other-host-12", HOST.upper(), "ZQARGUMENT", "xzqRun-17y"),
)


def test_no_host_user_path_address_or_argument_is_in_a_copy_wherever_it_stood(tmp_path: Path) -> None:
    names = [position.format(word, word) for word in WORDS for position in POSITIONS]
    names += [f"{word}{end}" for word in (HOST, "zqada", "zqargument") for end in ("_0 forward", "-0", "/step")]
    scrub(write_private_capture(tmp_path / "zqrun", names), tmp_path / "copy")
    for path in (tmp_path / "copy").iterdir():
        content = path.read_bytes()
        for text in (content, gzip.decompress(content) if path.suffix == ".gz" else b""):
            for word in (PRIVATE, "cluster.internal", "10.11.12.13", "2001:db8", "fe80:", "1b:44", "/mnt/", "/home/"):
                places = [found.start() for found in re.finditer(word.encode(), text, re.IGNORECASE)]
                assert [text[max(place - 60, 0) : place + 40] for place in places] == [], word


def test_a_host_has_the_same_number_in_names_of_ranges_as_elsewhere(tmp_path: Path) -> None:
    scrub(write_private_capture(tmp_path / "zqrun", [f"{HOST}:0 forward"]), tmp_path / "copy")
    files = contents(tmp_path / "copy")
    assert '"host1:0 forward"' in files["rank0.cycle0.pt.trace.json.gz"]
    assert json.loads(files[MANIFEST])["processes"][0]["host"] == "host1"


def test_a_copied_trace_holds_nothing_private(tmp_path: Path) -> None:
    path = private_trace().write(tmp_path / "zqnode_7.1.pt.trace.json")
    scrub(path, tmp_path / "copy.json")
    assert PRIVATE not in (tmp_path / "copy.json").read_text().lower()


def test_names_of_operators_kernels_ranges_functions_and_source_files_stay(copy: Path) -> None:
    trace = contents(copy)["rank0.cycle0.pt.trace.json.gz"]
    for name in ("aten::mm", "gemm_kernel", "ProfilerStep#1", "train.py(41): step", "net.py(7): forward"):
        assert name in trace


def test_numbers_and_names_of_classes_stay(copy: Path) -> None:
    files = contents(copy)
    settings = json.loads(files["settings.0.json"])
    assert settings["environment"] == {"OMP_NUM_THREADS": "4"}
    assert settings["optimizer"] == {"fused": True, "name": "SGD"}
    assert re.fullmatch(r"\['folder\d', 'train.py'\]", str(settings["own_code"]))
    assert settings["loader"]["file"].endswith("/train.py")
    assert {**settings["loader"]["pads_at"], "file": ""} == {"file": "", "line": 7, "function": "collate"}
    assert json.loads(files[MANIFEST])["endings"][0]["message"] == "ValueError"
    assert json.loads(files[MANIFEST])["command"] == ["train.py"]


def test_a_report_on_the_copy_knows_the_same_files_as_the_users(tmp_path: Path, copy: Path) -> None:
    report = load(copy)
    assert PRIVATE not in repr(report).replace(str(tmp_path), "")
    assert len(report.recordings) == 1


def test_a_copy_holds_no_checksums_of_lines_and_a_comparison_of_two_knows_of_no_edit(tmp_path: Path) -> None:
    folders = [write_private_capture(tmp_path / name) for name in ("zqone", "zqother")]
    settings = folders[1] / "settings.0.json"
    settings.write_text(settings.read_text().replace(str(CHECKSUMS[1]), "77"))
    (edited,) = compare_paths(*folders).runs
    assert (edited.is_same_code, [one.name for one in edited.differences]) == (False, ["train.py"])
    copies = [scrub(folder, tmp_path / f"copy-{folder.name}").path for folder in folders]
    (run,) = compare_paths(*copies).runs
    assert (run.is_same_code, run.differences) == (None, ())
    assert changed_sentence(run) == UNKNOWN_CODE
    texts = [text for copy in copies for text in contents(copy).values()]
    assert not [number for text in texts for number in CHECKSUMS if str(number) in text]


def test_what_the_manifest_does_not_name_is_left_out(copy: Path) -> None:
    assert sorted(path.name for path in copy.iterdir()) == [
        "batches.0.csv",
        "manifest.json",
        "rank0.cycle0.pt.trace.json.gz",
        "settings.0.json",
        "stacks.0.jsonl",
        "steps.0.csv",
        "telemetry.host1.jsonl",
    ]


def test_every_argument_of_an_event_that_may_hold_text_is_scrubbed() -> None:
    may_hold_text = {
        field.name
        for field in msgspec.structs.fields(EventArgs)
        if field.type is msgspec.Raw or "str" in str(field.type)
    }
    assert may_hold_text == SCRUBBED_ARGUMENTS


@pytest.mark.parametrize("name", ["src rank", "dst rank", "bytes"])
def test_a_word_in_place_of_a_number_is_gone(name: str, tmp_path: Path) -> None:
    builder = private_trace().op("aten::mm", 900, 910)
    builder.events[-1].setdefault("args", {})[name] = "zqword"
    scrub(builder.write(tmp_path / "one.pt.trace.json"), tmp_path / "copy.json")
    assert "zqword" not in (tmp_path / "copy.json").read_text()


def test_every_text_of_stacks_and_tables_is_private_or_one_of_a_few_known_ones() -> None:
    kinds = (*get_args(StackRecord), TimedStep, TimedBatch)
    texts = {(kind, name) for kind in kinds for name, hint in get_type_hints(kind).items() if "str" in str(hint)}
    private = {(kind, name) for kind in kinds for name in private_fields(kind)}
    assert private < texts
    assert {name for _, name in texts - private} == {"format", "samples"}


def test_a_gzipped_copy_tells_neither_name_nor_time(tmp_path: Path) -> None:
    path = private_trace().write(tmp_path / "zqnode_7.1.pt.trace.json")
    scrub(path, tmp_path / "zqcopy.json.gz")
    head = (tmp_path / "zqcopy.json.gz").read_bytes()[:10]
    assert (head[3], head[4:8]) == (0, bytes(4))  # no flags, so no name; no time


@pytest.mark.parametrize("member", ["host_name", "env"])
def test_members_beside_the_events_that_no_report_reads_are_gone(tmp_path: Path, member: str) -> None:
    path = private_trace().write(tmp_path / "a.pt.trace.json")
    assert member in path.read_text()
    document: dict[str, Any] = json.loads(scrub(path, tmp_path / "copy.json").path.read_text())
    assert member not in document
    assert document["distributedInfo"] == {"backend": "nccl", "rank": 0, "world_size": 2}


def test_the_same_folder_has_the_same_number_at_each_place(tmp_path: Path) -> None:
    path = private_trace().write(tmp_path / "a.pt.trace.json")
    text = scrub(path, tmp_path / "copy.json").path.read_text()
    assert HOME not in text
    frames = re.findall(r"[^\";]*/train.py\(41\): step", text)
    assert len(frames) == 4  # two stacks, two Python calls
    assert len(set(frames)) == 1
    texts = Texts()
    one, other = (texts.file(f"/data/mine/{name}.py").rpartition("/")[0] for name in "ab")
    assert one == other != texts.file("/data/yours/a.py").rpartition("/")[0]
