"""Runs the shell steps of a composite action as a runner does: expressions filled in, in a clean environment.

What a runner does: https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-syntax, "Exit codes and
error action preference" (``bash --noprofile --norc -eo pipefail``), and "Default environment variables".
"""

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.children import Done, run
from tests.shared import CHECKOUT

_EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")


def document(path: Path) -> Any:
    """A YAML file; ``on`` is a key like any other."""
    loader = yaml.SafeLoader(path.read_text(encoding="utf-8"))
    loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:bool"]
        for first, resolvers in loader.yaml_implicit_resolvers.items()
    }
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


@dataclass
class Runner:
    """A runner with a workspace, a temporary folder and the files that steps write to."""

    folder: Path
    action: Path
    """``action.yml``."""

    inputs: Mapping[str, str]
    github: Mapping[str, str] = field(default_factory=dict)
    """Values of ``github.…``, by what follows."""

    extra: Mapping[str, str] = field(default_factory=dict)
    outputs: dict[str, dict[str, str]] = field(default_factory=dict)
    """By the id of the step."""

    done: dict[str, Done] = field(default_factory=dict)
    """The steps that ran, by their names."""

    def __post_init__(self) -> None:
        for name in ("workspace", "temp", "home"):
            (self.folder / name).mkdir(parents=True)
        for name in ("output", "summary"):
            (self.folder / name).touch()

    def run(self, *, keep: str = "") -> str:
        """Run the steps until one fails; returns the name of the failed one, or ''.

        Args:
            keep: steps whose names match this pattern are left out.
        """
        for step in document(self.action)["runs"]["steps"]:
            if not self._is_true(step.get("if", "true")) or (keep and re.search(keep, step["name"])):
                continue
            if "uses" in step:
                self.done[step["name"]] = Done(step["uses"], 0, "", "")
                continue
            done = self._shell(step)
            self.done[step["name"]] = done
            if done.returncode:
                return str(step["name"])
        return ""

    def _shell(self, step: Mapping[str, Any]) -> Done:
        assert step["shell"] == "bash"
        script = self.folder / "step.sh"
        script.write_text(step["run"], encoding="utf-8")
        (self.folder / "output").write_text("")
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder / "home"),
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_ACTION_PATH": str(self.action.parent),
            "GITHUB_WORKSPACE": str(self.folder / "workspace"),
            "GITHUB_OUTPUT": str(self.folder / "output"),
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary"),
            "GITHUB_REPOSITORY": "owner/project",
            "RUNNER_TEMP": str(self.folder / "temp"),
            **self.extra,
            **{name: self.filled(str(value)) for name, value in step.get("env", {}).items()},
        }
        bash = shutil.which("bash")
        assert bash
        command = (bash, "--noprofile", "--norc", "-eo", "pipefail", script)
        done = run(*command, cwd=self.folder / "workspace", env=environment)
        if "id" in step:
            self.outputs[step["id"]] = dict(_written((self.folder / "output").read_text(encoding="utf-8")))
        return done

    def filled(self, text: str) -> str:
        """The text with its expressions replaced by their values."""
        return _EXPRESSION.sub(lambda found: self._value(found[1]), text)

    def _value(self, expression: str) -> str:
        """The value of an expression of names, literals, ``==``, ``!=``, ``&&`` and ``||``."""
        if " || " in expression:
            return next((value for part in expression.split(" || ") if (value := self._value(part))), "")
        if " && " in expression:
            values = [self._value(part) for part in expression.split(" && ")]
            return values[-1] if all(values) else ""
        if comparison := re.fullmatch(r"(\S+) (==|!=) (\S+)", expression):
            is_equal = self._value(comparison[1]) == self._value(comparison[3])
            return "true" if is_equal == (comparison[2] == "==") else ""
        literal = re.fullmatch(r"'([^']*)'|(true)", expression)
        return self._named(expression) if literal is None else literal[1] or literal[2] or ""

    def _named(self, expression: str) -> str:
        where, _, name = expression.partition(".")
        if where == "inputs":
            declared = document(self.action)["inputs"][name]
            return self.inputs[name] if name in self.inputs else self.filled(str(declared.get("default", "")))
        if where == "steps":
            step, _, output = name.partition(".outputs.")
            return self.outputs[step].get(output, "")
        assert where == "github", expression
        return self.github.get(name, "")

    def _is_true(self, condition: str) -> bool:
        return bool(self._value(condition))


def _written(text: str) -> Iterator[tuple[str, str]]:
    """The outputs in a file that ``GITHUB_OUTPUT`` names: ``name=value``, or ``name<<END`` with lines until ``END``."""
    lines = iter(text.splitlines())
    for line in lines:
        name, sign, value = re.fullmatch(r"([\w-]+)(=|<<)(.*)", line).groups()  # type: ignore[union-attr]  # all lines are
        if sign == "<<":
            end, values = value, []
            for following in lines:
                if following == end:
                    break
                values.append(following)
            value = "\n".join(values)
        yield name, value


ACTIONS = (CHECKOUT / "action.yml", CHECKOUT / "comment" / "action.yml")
WORKFLOWS = tuple(sorted((CHECKOUT / "docs" / "ci").glob("*.yml")))
"""Examples for other projects."""

OWN_WORKFLOWS = tuple(sorted((CHECKOUT / ".github" / "workflows").glob("*.yml")))
"""Those of this project."""
