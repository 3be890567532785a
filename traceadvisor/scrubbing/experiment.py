"""Scrubs the result of ``sweep`` or ``try``: its JSON file, from which the pages beside it are made anew."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from traceadvisor.bundle.folder import is_bundle
from traceadvisor.errors import InputError
from traceadvisor.model.experiment import FILE
from traceadvisor.model.limits import LIMITS, Limits
from traceadvisor.scrubbing.bundle import ERROR_CLASS, without_arguments
from traceadvisor.scrubbing.forms import is_usual
from traceadvisor.scrubbing.sidecars import read_settings
from traceadvisor.scrubbing.texts import Numbers, Texts
from traceadvisor.scrubbing.trace import learn_from
from traceadvisor.text.secrets import secret_words

_PLANS = ("plan.json", "processes/*/plan.json")
"""The file that earlier versions wrote for the training process, with the secrets of the command."""

_OF_THE_TOOL = frozenset(
    {
        *("schema", "tool_version", "kind", "verdict", "device", "torch", "currency", "optimizer", "fix", "fixes"),
        *("outcome", "loss", "apart", "reason", "setting"),
    }
)
_PATHS = frozenset({"scratch", "trace_report", "changed_files", "path", "files"})
_CODE = frozenset({"name", "title", "change", "lines", "apart_at"})
_SOURCE = "detail"
"""The member that repeats code of the script."""

_SETTINGS = frozenset({"settings", "base", "own_settings", "recommended"})
_LEFT_OUT = "left_out"
_PREFIXES = ("env:", "set:", "patch")
_MESSAGE = re.compile(rf"((?:\A|: )[A-Za-z_][\w.]{{0,80}}|{ERROR_CLASS.pattern}):\s.*", re.DOTALL)
"""The class of an exception, its message, and all behind that."""

_REASONS = {
    "journal.jsonl": "the result has its figures",
    "output.log": "it is what the script printed",
    "plan.json": "an earlier version wrote it, with the command as it was",
    "processes": "the result has its figures",
    "saved-by-the-script": "these are files of the script",
    "report.html": "make it from a copy of the capture",
}


def is_experiment(folder: Path) -> bool:
    """Whether ``sweep`` or ``try`` wrote a folder, and it is no capture."""
    return (folder / FILE).is_file() and not is_bundle(folder)


def left_out(folder: Path, copy: Path) -> tuple[str, ...]:
    """A sentence for each file and folder of an experiment that its copy lacks."""
    names = sorted({path.name for path in folder.iterdir()} - {path.name for path in copy.iterdir()})
    return tuple(f"{name} was left out: {_REASONS.get(name, 'it is no file of an experiment')}." for name in names)


def scrubbed_experiment(folder: Path, limits: Limits = LIMITS) -> bytes:
    """The JSON file of an experiment without environment, paths, hosts, users and arguments.

    ``folder``: of the experiment. The plans of earlier versions beside the result tell more words that are private.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no JSON.
    """
    document = msgspec.json.decode((folder / FILE).read_bytes(), type=dict[str, Any])
    plan_files = [path for name in _PLANS for path in sorted(folder.glob(name)) if path.is_file()]
    texts = Texts()
    for path in (folder / FILE, *plan_files):
        with suppress(InputError, OSError):
            learn_from(path, texts, limits)
    scrubber = _Scrubber(texts, document, [plan for path in plan_files if (plan := read_settings(path))])
    return msgspec.json.encode(scrubber.scrubbed("", document))


class _Scrubber:
    """Scrubs the members of a document by their names."""

    def __init__(self, texts: Texts, document: Mapping[str, Any], plans: Sequence[Mapping[str, Any]]) -> None:
        self._texts = texts
        self._file = Numbers("file")
        self._command = without_arguments(tuple(document["command"]))
        values = [*_values(document), *(pair for plan in plans for pair in _values(plan))]
        own_words = {word for name, value in values for word in (name, value) if not _is_private(name, value)}
        own_words |= {section["name"] for section in document["sections"]}
        private = [(name, value) for name, value in values if _is_private(name, value)]
        for words in (document["command"], *(plan.get("script", ()) for plan in plans)):
            given = tuple(word for word in words if isinstance(word, str))
            self._learn(given[2 if given[:1] == ("-m",) else 1 :], own_words)
            self._learn(secret_words(given, os.environ), own_words)
        self._learn((value for _, value in private), own_words)
        self._assigned = {
            form.format(name.rpartition(":")[2], value): form.format(name.rpartition(":")[2], texts.argument(value))
            for name, value in sorted(private, key=lambda pair: -len(pair[1]))
            for form in ("{}={}", "{} = '{}'", "git apply {1}")
        }
        self._assignments = re.compile("|".join(map(re.escape, self._assigned)) or r"(?!)")

    def _learn(self, words: Iterator[str] | Sequence[str] | frozenset[str], own_words: set[str]) -> None:
        self._texts.learn_arguments(word for word in words if word not in own_words)

    def scrubbed(self, name: str, value: Any) -> Any:
        """A member of the document."""
        value = None if name == _SOURCE else value
        match value:
            case dict() if name in _SETTINGS:
                return {
                    key: (self._texts.argument(item) if _is_private(key, item) else item) for key, item in value.items()
                }
            case dict():
                return {key: self.scrubbed(key, item) for key, item in value.items()}
            case list() if name == "command":
                return self._command
            case list():
                return [self.scrubbed(name, item) for item in value]
            case str():
                return value if name in _OF_THE_TOOL else self._text(name, value)
        return value

    def _text(self, name: str, text: str) -> str:
        if name in _PATHS:
            return self._path(text.replace("\\", "/"))
        text = self._assignments.sub(lambda found: self._assigned[found[0]], text)
        if name in _CODE:
            return self._texts.name(text)
        if name == _LEFT_OUT:
            before, options_end, command = text.partition(" -- ")
            if options_end and "`" in command:
                text = f"{before} -- {' '.join(self._command)}`{command.rpartition('`')[2]}"
        return self._texts.free(text if name == _LEFT_OUT else _MESSAGE.sub(r"\1", text))

    def _path(self, path: str) -> str:
        """A path with its folders and its last name numbered, unless that is source code."""
        folder, _, last = path.rpartition("/")
        begin = self._texts.file(f"{folder}/") if folder else ""
        return f"{begin}{self._texts.name(last) if last.endswith('.py') else self._file(last)}"


def _values(value: Any) -> Iterator[tuple[str, str]]:
    """Names and texts of all settings, in results and in plans."""
    match value:
        case {"name": str(name), "values": [*items]}:
            yield from ((name, item) for item in items if isinstance(item, str))
        case dict():
            for name, item in value.items():
                if name in (*_SETTINGS, "arm") and isinstance(item, dict):
                    yield from ((key, one) for key, one in item.items() if isinstance(one, str))
                yield from _values(item)
        case list():
            for item in value:
                yield from _values(item)


def _is_private(name: str, value: object) -> bool:
    """Whether the user chose a value freely; six variables that change how training runs have usual values."""
    if not isinstance(value, str) or not name.startswith(_PREFIXES):
        return False
    return not is_usual(name.removeprefix("env:"), value)
