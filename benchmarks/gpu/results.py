"""Turn what came back from a GPU machine into sample traces, results for tests, and pages.

    python -m benchmarks.gpu.results FOLDER [--accept-reduced] [--checkout DIR]

It may be run again: what it wrote of the same results is replaced.
"""

from __future__ import annotations

import gzip
import io
import json
import pickle
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

import traceadvisor
from benchmarks.gpu.carried import ROOT
from benchmarks.gpu.outbox import FORMAT
from benchmarks.gpu.predictions import found_rules, predict, predict_all_fixes
from sample_traces.record import publish
from traceadvisor.model.limits import LIMITS
from traceadvisor.parsing.snapshot.snapshot_file import read_whole
from traceadvisor.scrubbing.snapshot import PROTOCOL

MOST_SAMPLE_BYTES = 1_500_000
RESULTS = Path("tests", "recordings", "gpu")
SAMPLES = Path("sample_traces")
PREFIX = "gpu-"

KEPT = (
    *(
        "format",
        "part",
        "status",
        "error",
        "reduced",
        "tool_version",
        "device",
        "processor",
        "cores",
        "python",
        "torch",
    ),
    *("cuda", "driver", "started", "took_s", "lines", "skipped", "experiments", "memory", "known_work", "real_model"),
    *(
        "real_model_device",
        "telemetry",
        "overhead_s",
        "special",
        "fired",
        "stop_after_window",
        "launched",
        "kills",
        "capture_overhead",
        "undisturbed",
        "checks",
    ),
)
"""Keys of a result that are committed; captures become samples."""

_OWN_PATH = re.compile(r"(?<![\w.~-])/(?:[^/\s\"'<>:(),]+/)+(?=[^/\s\"'<>:(),]+)")
_GOLDEN_TESTS = (
    *("tests/test_sample_traces.py", "tests/test_rule_pages.py", "tests/recordings/test_gpu_results.py"),
    *("-k", "report_of_a_sample or fired or page"),
)


@dataclass(slots=True)
class Taken:
    """What was made of the results."""

    parts: list[str] = field(default_factory=list)
    samples: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


@click.command(help=__doc__)
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--accept-reduced", is_flag=True, help="Also take reduced runs; they are marked as no GPU results.")
@click.option("--checkout", type=click.Path(path_type=Path), default=ROOT, help="Checkout to write into.")
@click.option("--no-golden", is_flag=True, help="Do not write reports and pages anew.")
def main(folder: Path, accept_reduced: bool, checkout: Path, no_golden: bool) -> None:  # noqa: FBT001  # flags
    """Take the results and say what became of them."""
    taken = take(folder, checkout, accept_reduced=accept_reduced)
    for remark in taken.remarks:
        click.echo(remark)
    click.echo(f"{len(taken.parts)} results in {RESULTS}: {', '.join(taken.parts)}")
    click.echo(f"{len(taken.samples)} sample traces: {', '.join(taken.samples) or 'none'}")
    if no_golden:
        return
    one_by_one = "--numprocesses=0"  # a rule's page lists the samples of a file that an earlier test writes
    command = [sys.executable, "-m", "pytest", "-q", one_by_one, "--golden", *_GOLDEN_TESTS]
    ended = subprocess.run(command, cwd=checkout, check=False).returncode
    click.echo("Read the difference before you commit it." if ended == 0 else "The pages could not all be written.")
    sys.exit(ended)


def take(folder: Path, checkout: Path, *, accept_reduced: bool = False) -> Taken:
    """Write results and samples of all parts in a folder into a checkout.

    Raises:
        click.ClickException: there is no such folder, or nothing in it can be taken.
    """
    if not folder.is_dir():
        raise click.ClickException(f"{folder} is no folder. Give the one that the kit wrote to.")
    documents = dict(_documents(folder))
    if not documents:
        raise click.ClickException(f"{folder} holds no results of the kit (JSON files of format {FORMAT}).")
    taken = Taken()
    for path, document in documents.items():
        name = document["part"]
        if document["status"] != "complete":
            taken.remarks.append(f"{name} did not come to its end ({document['status']}): {document['error']}")
        is_gpu = bool(document["device"]) and not document["reduced"]
        if not is_gpu and not accept_reduced:
            taken.remarks.append(f"{name} is left out: a reduced run or one without a GPU is no GPU result.")
            continue
        if document["status"] == "failed" and not document.get("experiments") and not document["captures"]:
            taken.remarks.append(f"{name} is left out: it holds no results.")
            continue
        with tempfile.TemporaryDirectory() as scratch:
            bundles = {row["name"]: (row, bundle) for row, bundle in _bundles(path, document, Path(scratch), taken)}
            _predict_again(document, {key: bundle for key, (_, bundle) in bundles.items()})
            for row, bundle in bundles.values():
                _sample(row, bundle, document, checkout, taken)
        target = checkout / RESULTS / f"{'' if is_gpu else 'reduced-'}{name}.json"
        target.parent.mkdir(parents=True, exist_ok=True)
        kept = {key: document[key] for key in KEPT if key in document}
        target.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        taken.parts.append(name)
    if not taken.parts:
        raise click.ClickException("Nothing was taken.\n" + "\n".join(taken.remarks))
    return taken


def sample_name(capture: str, *, reduced: bool) -> str:
    """The folder of a sample: letters and dashes."""
    return PREFIX + ("reduced-" if reduced else "") + re.sub(r"[^a-z]+", "-", capture.lower()).strip("-")


def with_row(page: str, name: str, row: str) -> str:
    """The samples' table with the row of a sample replaced, or added at the table's end."""
    lines = page.splitlines()
    rows = [place for place, line in enumerate(lines) if line.startswith("| `")]
    same = [place for place in rows if lines[place].startswith(f"| `{name}` |")]
    if same:
        lines[same[0]] = row
    else:
        lines.insert(rows[-1] + 1, row)
    return "\n".join(lines) + "\n"


def without_own_paths(text: str, root: str = "") -> str:
    """A text with folders from the root of a machine taken off its paths.

    What is left: of a checkout at ``root``, the path in it; of an installed package, the path from the package on; else
    the last two names.
    """

    def shortened(found: re.Match[str]) -> str:
        _, packages, inside = found[0].rpartition("/site-packages/")
        return inside if packages else f"{found[0].rstrip('/').rpartition('/')[2]}/"

    if root:
        text = text.replace(f"{root}/", "").replace(root, "checkout")
    return _OWN_PATH.sub(shortened, text)


def _documents(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in sorted(folder.rglob("*.json")):
        if path.name.startswith("."):
            continue
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise click.ClickException(f"{path} is no JSON: {error}. Copy it again.") from error
        if isinstance(document, dict) and document.get("format") == FORMAT:
            yield path, document


def _bundles(
    path: Path, document: dict[str, Any], scratch: Path, taken: Taken
) -> Iterator[tuple[dict[str, Any], Path]]:
    """Unpack the captures of a part."""
    for row in document["captures"]:
        archive = path.with_name(row["archive"]) if row["archive"] else None
        if archive is None or not archive.is_file():
            missing = row["left_out"] or f"{row['archive']} is missing"
            taken.remarks.append(f"capture {row['name']} did not come back: {missing}")
            continue
        with tarfile.open(archive) as outer:
            member = outer.extractfile(f"{row['name']}.tar.gz")
            if member is None:
                continue
            with tarfile.open(fileobj=io.BytesIO(member.read())) as inner:
                _extract_files(inner, scratch)
        yield row, scratch / row["name"]


def _extract_files(archive: tarfile.TarFile, folder: Path) -> None:
    """Write the regular files of an archive below a folder; links, devices and names that lead out are left out."""
    for member in archive:
        target = (folder / member.name).resolve()
        content = archive.extractfile(member) if member.isfile() else None
        if content is not None and target.is_relative_to(folder.resolve()):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content.read())


def _predict_again(document: dict[str, Any], bundles: dict[str, Path]) -> None:
    """Replace predictions made on the machine by those of this version, where the captures came back whole."""
    reports: dict[str, traceadvisor.Report] = {}
    for name, bundle in bundles.items():
        if any(bundle.glob("*.pt.trace.json.gz")):
            reports[name] = _report(bundle)
    document["fired"] = {**document.get("fired", {}), **{name: found_rules(one) for name, one in reports.items()}}
    for experiment in document.get("experiments", ()):
        for arm, row in experiment["arms"].items():
            if report := reports.get(experiment["captures"].get(arm, "")):
                predicted = predict(report, row["rules"]) if row["rules"] else predict_all_fixes(report)
                row["predicted"] = predicted.document()


def _report(bundle: Path) -> traceadvisor.Report:
    try:
        return traceadvisor.load(bundle, settings=traceadvisor.Settings(plugins=False))
    except traceadvisor.TraceAdvisorError as error:
        raise click.ClickException(f"{bundle.name} cannot be read: {error}") from error


def _sample(row: dict[str, Any], bundle: Path, document: dict[str, Any], checkout: Path, taken: Taken) -> None:
    """Publish a capture as a sample with its line, where it is whole and small enough."""
    if not any(bundle.glob("*.pt.trace.json.gz")):
        taken.remarks.append(f"capture {row['name']} is no sample: it came without its traces")
        return
    name = sample_name(row["name"], reduced=document["reduced"])
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch, name)
        made.mkdir()
        publish(bundle, made)
        repository = json.loads((made / "manifest.json").read_text(encoding="utf-8")).get("repository") or {}
        root = repository.get("root", "")
        for path in made.iterdir():
            _clean(path, root)
        size = sum(path.stat().st_size for path in made.iterdir())
        if size > MOST_SAMPLE_BYTES:
            taken.remarks.append(f"capture {row['name']} is no sample: {size} bytes, limit {MOST_SAMPLE_BYTES}")
            return
        shutil.rmtree(checkout / SAMPLES / name, ignore_errors=True)
        shutil.copytree(made, checkout / SAMPLES / name)
    page = checkout / SAMPLES / "README.md"
    hardware = f"{document['device'] or 'no GPU: a reduced run of the kit'}; torch {document['torch']}"
    line = f"| `{name}` | {hardware} | `{without_own_paths(row['command'], root)}` | {row['expected']} |"
    page.write_text(with_row(page.read_text(encoding="utf-8"), name, line), encoding="utf-8")
    taken.samples.append(name)


def _clean(path: Path, root: str) -> None:
    """Take the machine's folders out of a published file."""
    if path.suffix != ".gz":
        path.write_text(without_own_paths(path.read_text(encoding="utf-8"), root), encoding="utf-8")
        return
    if path.name.endswith(".pickle.gz"):
        content = pickle.dumps(_cleaned(read_whole(path, LIMITS), root, {}), PROTOCOL)
    else:
        content = without_own_paths(gzip.decompress(path.read_bytes()).decode(), root).encode()
    with gzip.GzipFile(path, "wb", compresslevel=9, mtime=0) as file:
        file.write(content)


def _cleaned(value: Any, root: str, copies: dict[int, Any]) -> Any:
    """A copy of a memory history without the machine's folders; what stands in several places does in the copy, too."""
    if isinstance(value, str):
        return without_own_paths(value, root)
    if isinstance(value, dict | list) and id(value) not in copies:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        made = {key: _cleaned(one, root, copies) for key, one in items}
        copies[id(value)] = made if isinstance(value, dict) else list(made.values())
    return copies.get(id(value), value)


if __name__ == "__main__":
    main()
