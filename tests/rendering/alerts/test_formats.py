"""SARIF against its schema and a real consumer; annotations and Code Quality against their documented forms."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import jsonschema
import pytest

from tests.build_report import hostile, nothing_readable, on_the_cpu, three_recordings
from tests.children import run
from tests.hostile_input import HOSTILE, write_hostile_input
from tests.rendering.alerts.alerting import located, many, of_repository
from tests.rendering.captures import captured, captured_ranks
from traceadvisor import load
from traceadvisor.model.findings import Location, RuleMeta, Severity
from traceadvisor.model.report import Report, RuleSection, RuleText
from traceadvisor.rendering.alerts import github, gitlab, sarif
from traceadvisor.rendering.formats import FORMATS

SCHEMA = json.loads((Path(__file__).parent / "schema" / "sarif-schema-2.1.0.json").read_text(encoding="utf-8"))
ALL = (three_recordings, on_the_cpu, nothing_readable, captured, captured_ranks)
WILD = Location('src/a,b:c%0A"\n::error::x.py', 7, "f,title=x::y%")


def log(report: Report) -> Any:
    """The one run of the report's SARIF."""
    document = json.loads(sarif.render(report))
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    (only,) = document["runs"]
    return only


@pytest.fixture(scope="module")
def hostile_report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return load(write_hostile_input(tmp_path_factory.mktemp("hostile"), HOSTILE))


@pytest.mark.parametrize("build", ALL)
def test_sarif_follows_its_schema(build: Callable[[], Report]) -> None:
    assert log(build())["results"] or build is nothing_readable
    assert len(log(hostile(build()))["results"]) == len(log(build())["results"])


@pytest.mark.parametrize("form", ["html", "md", "json", "sarif", "github", "gitlab"])
def test_the_version_that_a_report_claims_is_cleaned(form: str) -> None:
    token = f"ghp_{'a1B2' * 9}"
    shown = FORMATS[form].render(replace(on_the_cpu(), tool_version=f"\x1b[31m{token} /home/bob/x"))
    assert not any(private in shown for private in (b"\x1b", b"\\u001b", token.encode(), b"/home/bob"))


def test_the_schema_refuses_what_is_no_sarif() -> None:
    document = json.loads(sarif.render(three_recordings()))
    document["runs"][0]["results"][0]["level"] = "severe"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(SCHEMA).validate(document)


def test_a_result_names_its_rule_line_level_and_fingerprints() -> None:
    found = of_repository(Location("/repo/src/my train.py", 41, "train"), Location("lib.py", 2))
    how = RuleSection("How to fix it", "Wait less.")
    text = RuleText("DATA001", "data-wait", "The loop waits", "It waits.", (how,))
    run_ = log(replace(found, rules=(text,)))
    (result,) = run_["results"]
    rule = run_["tool"]["driver"]["rules"][result["ruleIndex"]]
    physical = result["locations"][0]["physicalLocation"]

    assert (result["ruleId"], rule["id"], result["level"]) == ("DATA001", "DATA001", "error")
    assert physical["artifactLocation"] == {"uri": "src/my%20train.py", "uriBaseId": "SRCROOT"}
    assert physical["region"] == {"startLine": 41}
    assert result["locations"][0]["logicalLocations"] == [{"name": "train", "kind": "function"}]
    assert result["relatedLocations"][0]["physicalLocation"]["region"] == {"startLine": 2}
    assert set(result["partialFingerprints"]) == {"primaryLocationLineHash", "traceadvisorPlace/v1"}
    assert rule["fullDescription"] == {"text": "It waits."}
    assert rule["help"]["text"] == "It waits.\n\nHow to fix it: Wait less."
    assert rule["help"]["markdown"] == "It waits.\n\n**How to fix it**\n\nWait less."
    assert rule["helpUri"].startswith("https://docs.pytorch.org/")


@pytest.mark.parametrize(
    ("severity", "level", "command", "gitlab_severity"),
    [
        (Severity.HIGH, "error", "error", "major"),
        (Severity.MEDIUM, "warning", "warning", "minor"),
        (Severity.LOW, "note", "notice", "info"),
    ],
)
def test_the_level_follows_the_severity(severity: Severity, level: str, command: str, gitlab_severity: str) -> None:
    report = located(Location("train.py", 1), severity=severity)
    assert log(report)["results"][0]["level"] == level
    assert github.render(report).decode().splitlines()[1].startswith(f"::{command} file=train.py,line=1,")
    assert json.loads(gitlab.render(report))[0]["severity"] == gitlab_severity


def test_a_rule_of_a_plugin_has_its_title_for_help() -> None:
    report = located(Location("train.py", 1))
    (row,) = report.findings
    finding = replace(row.finding, rule=RuleMeta("ACME001", "acme", "Batches are [shown](http://a) {0}"))
    (rule,) = log(replace(report, findings=(replace(row, finding=finding),)))["tool"]["driver"]["rules"]
    assert rule["help"] == rule["fullDescription"] == {"text": "Batches are [shown] (http://a) { 0}"}
    assert "helpUri" not in rule


def test_paths_are_relative_uris_whatever_a_trace_says(hostile_report: Report) -> None:
    files = ("/etc/passwd", "http://canary.invalid/x.py", "file:///etc/passwd", "../../x.py", WILD.file)
    for report in (hostile_report, *(located(Location(file, 1)) for file in files)):
        for result in log(report)["results"]:
            uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
            assert not re.match(r"/|~|[A-Za-z][A-Za-z0-9+.-]*:", uri)
            assert ".." not in unquote(uri).split("/")


def test_a_message_has_no_link_and_no_placeholder(hostile_report: Report) -> None:
    text = json.dumps(log(hostile(three_recordings()))["results"]) + json.dumps(log(hostile_report))
    assert "`[x] (http" in text
    messages = [result["message"]["text"] for result in log(hostile(three_recordings()))["results"]]
    assert not any(re.search(r"\]\(|\{\d", message) for message in messages)


def test_a_damaged_recording_is_a_notification() -> None:
    (invocation,) = log(three_recordings())["invocations"]
    assert [each["message"]["text"] for each in invocation["toolExecutionNotifications"]] == [
        "12% of kernel launches have no device record in the last step."
    ]


@pytest.mark.nightly("traceadvisor/rendering")
@pytest.mark.parametrize("build", ALL)
def test_the_sarif_multitool_finds_no_error(build: Callable[[], Report], page_checkers: Path, tmp_path: Path) -> None:
    assert _validated(page_checkers, sarif.render(build()), tmp_path / "a.sarif") == set()
    assert _validated(page_checkers, sarif.render(hostile(build())), tmp_path / "b.sarif") == set()


@pytest.mark.nightly("traceadvisor/rendering")
def test_the_sarif_multitool_finds_what_is_wrong(page_checkers: Path, tmp_path: Path) -> None:
    document = json.loads(sarif.render(three_recordings()))
    document["runs"][0]["results"][0]["ruleIndex"] = 99
    assert _validated(page_checkers, json.dumps(document).encode(), tmp_path / "a.sarif")


def _validated(page_checkers: Path, content: bytes, path: Path) -> set[str]:
    """The rules of the SARIF multitool that the file breaks, except SARIF2005: the project has no web page to name."""
    path.write_bytes(content)
    program = page_checkers / "@microsoft" / "sarif-multitool" / "bin.js"
    done = run(
        "node", program, "validate", path, "--output", path.with_suffix(".found.json"), "--log", "ForceOverwrite"
    )
    found = json.loads(path.with_suffix(".found.json").read_text(encoding="utf-8-sig"))
    broken = {result["ruleId"] for each in found["runs"] for result in each.get("results", ())}
    assert "Analysis completed successfully" in done.stdout or broken, done.stdout + done.stderr
    return broken - {"SARIF2005"}


ANNOTATION = re.compile(r"::(?:error|warning|notice) file=([^,:]*),line=(\d+),title=([^,:]*)::([^\r\n]*)")
"""A workflow command; values of properties have no comma and no colon, and a percent sign begins an escape."""


def _read(escaped: str) -> str:
    """The text of an escaped value, as the runner reads it: the percent sign last."""
    for code, character in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ",")):
        escaped = escaped.replace(code, character)
    return escaped.replace("%25", "%")


@pytest.mark.parametrize("build", ALL)
def test_every_line_is_a_workflow_command(build: Callable[[], Report]) -> None:
    for report in (build(), hostile(build())):
        first, *lines = github.render(report).decode().split("\n")[:-1]
        assert first.startswith("::debug::TraceAdvisor ")
        assert len(lines) == len(report.findings)
        for line in lines:
            found = ANNOTATION.fullmatch(line)
            assert found
            assert not re.search("%(?!25|0D|0A|3A|2C)", line)


def test_a_hostile_path_stays_in_its_property() -> None:
    (line,) = github.render(located(WILD)).decode().splitlines()[1:]
    found = ANNOTATION.fullmatch(line)
    assert found
    assert _read(found[1]) == 'src/a,b:c%0A" ::error::x.py'
    assert _read(found[3]) == "DATA001 The device waits for the data loader"


def test_annotations_stop_where_github_does() -> None:
    lines = github.render(many(25, Severity.MEDIUM)).decode().splitlines()
    assert len(lines) == 1 + 10
    assert [line.split(",line=")[1].split(",")[0] for line in lines[1:]] == [str(line) for line in range(1, 11)]


def test_a_code_quality_report_has_its_documented_fields() -> None:
    (found,) = json.loads(gitlab.render(of_repository(Location("/repo/src/train.py", 41, "train"))))
    assert found["location"] == {"path": "src/train.py", "lines": {"begin": 41}}
    assert set(found) == {"description", "check_name", "fingerprint", "severity", "location"}
    assert found["check_name"] == "traceadvisor/DATA001"
    assert found["description"].startswith("The device waits for the data loader. Saves about 51.0 ms")


@pytest.mark.parametrize("build", ALL)
def test_a_code_quality_report_has_unique_fingerprints_and_relative_paths(build: Callable[[], Report]) -> None:
    for report in (build(), hostile(build())):
        found = json.loads(gitlab.render(report))
        assert len({each["fingerprint"] for each in found}) == len(found) == len(report.findings)
        assert all(each["severity"] in {"info", "minor", "major", "critical", "blocker"} for each in found)
        assert not any(each["location"]["path"].startswith(("/", "./", "~")) for each in found)
