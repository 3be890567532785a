"""What the wheel and the source distribution hold, and what they say of themselves."""

import json
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest
import yaml

import traceadvisor
from tests.children import run
from tests.once import Once
from tests.shared import CHECKOUT

MOST_WHEEL_BYTES = 2_500_000
RECORDED = CHECKOUT / "sample_traces" / "loader-bound"
TEMPLATES = CHECKOUT / "templates"


def _build(folder: Path) -> None:
    run(sys.executable, "-m", "hatchling", "build", "-d", folder, cwd=CHECKOUT, check=True)


@pytest.fixture
def wheel(once: Once) -> zipfile.ZipFile:
    (path,) = once("distribution", _build).glob("*.whl")
    return zipfile.ZipFile(path)


@pytest.fixture
def source(once: Once) -> set[str]:
    """Paths in the source distribution, below its folder."""
    (path,) = once("distribution", _build).glob("*.tar.gz")
    with tarfile.open(path) as archive:
        return {name.partition("/")[2] for name in archive.getnames()}


@pytest.fixture
def metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    return message_from_bytes(wheel.read(name))


@pytest.mark.nightly("pyproject.toml")
def test_the_wheel_is_small(wheel: zipfile.ZipFile) -> None:
    assert wheel.filename
    assert Path(wheel.filename).stat().st_size < MOST_WHEEL_BYTES


def test_the_wheel_holds_the_package_and_what_it_needs_beside_python(wheel: zipfile.ZipFile) -> None:
    about = f"traceadvisor-{traceadvisor.__version__}"
    wanted = {f"traceadvisor/_templates/{path.name}" for path in TEMPLATES.iterdir()}
    wanted |= {f"traceadvisor/_recorded/{path.name}" for path in RECORDED.iterdir()}
    wanted |= {"traceadvisor/py.typed", "traceadvisor/demo/train.py"}
    wanted |= {f"{about}.dist-info/licenses/LICENSE", f"{about}.data/data/share/man/man1/traceadvisor.1"}
    assert wanted <= set(wheel.namelist())
    assert {name.partition("/")[0] for name in wheel.namelist()} == {
        "traceadvisor",
        f"{about}.dist-info",
        f"{about}.data",
    }


def test_the_source_distribution_holds_the_documentation_and_all_that_tests_need(source: set[str]) -> None:
    folders = ("docs", "tests", "templates", "sample_traces", "benchmarks", "comment", "findings", ".ci", ".github")
    files = [
        path for folder in folders for path in (CHECKOUT / folder).rglob("*.*") if "node_modules" not in path.parts
    ]
    kept = {
        str(path.relative_to(CHECKOUT)) for path in files if path.suffix in {".md", ".py", ".json", ".toml", ".yml"}
    }
    kept |= {path.name for path in CHECKOUT.glob("*.md")} | {
        "CITATION.cff",
        "LICENSE",
        "Makefile",
        "docs/traceadvisor.1",
    }
    assert kept <= source


def test_the_metadata_is_complete(metadata: Message) -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert metadata["Metadata-Version"] == "2.4"
    assert metadata["Version"] == traceadvisor.__version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata["Requires-Python"] == project["requires-python"]
    classifiers = metadata.get_all("Classifier", [])
    assert {"Typing :: Typed", "Programming Language :: Python :: 3.13"} <= set(classifiers)
    assert len(metadata["Keywords"].split(",")) == len(project["keywords"])


def test_a_plain_installation_brings_no_torch_and_none_of_the_extras(metadata: Message) -> None:
    plain = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    names = {line.replace(">", " ").replace(";", " ").split()[0] for line in plain}
    assert names == {"click", "isal", "jinja2", "msgspec", "numpy", "pandas", "rich", "weasyprint"}


def test_only_one_extra_brings_the_old_plugin_to_users(metadata: Message) -> None:
    lines = [line.split("; extra == ") for line in metadata.get_all("Requires-Dist", []) if "extra ==" in line]
    brought = {(name.partition(">")[0], extra.strip("'\"")) for name, extra in lines}
    assert {name for name, extra in brought if extra == "tensorboard"} == {"tensorboard"}
    holders = {extra for name, extra in brought if name == "torch-tb-profiler"}
    assert holders == {"old-plugin", "benchmarks", "dev"}


def test_the_citation_is_of_this_version_and_licence(metadata: Message) -> None:
    citation = yaml.safe_load((CHECKOUT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= citation.keys(), "the format requires these"
    assert (citation["version"], citation["license"]) == (metadata["Version"], metadata["License-Expression"])


@pytest.mark.nightly("pyproject.toml", ".ci/dist", ".ci/rehearse", ".ci/sbom")
def test_a_release_is_rehearsed_with_an_index_on_this_machine(tmp_path: Path) -> None:
    run(CHECKOUT / ".ci" / "dist", check=True, limit_s=600)
    done = run(CHECKOUT / ".ci" / "rehearse", check=True, limit_s=1800)
    assert "pipx, again" in done.stdout
    (built,) = (CHECKOUT / "dist").glob("*.whl")
    run(CHECKOUT / ".ci" / "sbom", built, tmp_path / "sbom.json", check=True, limit_s=600)
    names = {part["name"] for part in json.loads((tmp_path / "sbom.json").read_bytes())["components"]}
    assert {"traceadvisor", "numpy", "pandas", "weasyprint"} <= names
