"""The tab: what TensorBoard asks of a plugin, and what the tab's script asks of this process."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any

from tensorboard.backend.http_util import Respond
from tensorboard.plugins import base_plugin
from werkzeug import Request, Response

from traceadvisor.indexing.cache import Cache, cache_folder
from traceadvisor.indexing.runs import ALL, NEWEST, Run, shown
from traceadvisor.integrations.tensorboard.job import Job, side_of
from traceadvisor.integrations.tensorboard.reports import Reports
from traceadvisor.integrations.tensorboard.runs import EVERYTHING, Logs, roots_of
from traceadvisor.integrations.tensorboard.visitors import Visitors
from traceadvisor.rendering.writers.templates import hashed, script, style, template_folder
from traceadvisor.text.cleaning import clean

_POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">')
_PREFERENCE = "(prefers-color-scheme: dark)"
_QUERIES = {"dark": "(min-width: 0)", "light": "not all"}
"""Stands for the browser's preference in the theme of TensorBoard."""

_SCRIPT, _STYLE = "tab.js", "tab.css"

_READING = ("GET", "HEAD")
_METHODS = {"/report": (*_READING, "POST"), "/leave": ("POST",)}
"""A report starts by POST only: no picture or link of another site can start one."""


class Tab(base_plugin.TBPlugin):
    """The Advisor tab."""

    plugin_name = "traceadvisor"

    def __init__(self, context: Any) -> None:
        """Prepare; reads nothing."""
        flags = context.flags
        self._logs = Logs(roots_of(context.logdir and flags.logdir, flags.logdir_spec) if flags else {})
        self._visitors = Visitors(flags)
        self._lock = threading.Lock()

    def get_plugin_apps(self) -> Mapping[str, Callable[..., Any]]:
        """Return what is served, by its path."""
        pages = {"/runs": self._runs, "/report": self._report, "/leave": self._leave, "/page": self._page}
        files = {f"/{name}": _file(name, kind) for name, kind in ((_SCRIPT, "text/javascript"), (_STYLE, "text/css"))}
        served = {
            path: _guarded(page, _METHODS.get(path, _READING), self._visitors.refusal) for path, page in pages.items()
        }
        served |= {path: _guarded(file, _READING, self._visitors.foreign) for path, file in files.items()}
        return {path: Request.application(page) for path, page in served.items()}

    def is_active(self) -> bool:
        """Whether there is a recording below the log folders."""
        return bool(self._logs.runs())

    def frontend_metadata(self) -> base_plugin.FrontendMetadata:
        """Return the name and the script of the tab."""
        return base_plugin.FrontendMetadata(es_module_path=f"/{_SCRIPT}", tab_name="Advisor", disable_reload=True)

    def _reports(self) -> Reports:
        """Makes the folder of the cache on first use."""
        with self._lock:
            return self._made

    @cached_property
    def _made(self) -> Reports:
        return Reports(Cache(cache_folder()))

    def _runs(self, request: Request) -> Response:
        """The runs, the newest first, with what earlier reports say of them."""
        rows: list[dict[str, Any]] = []
        for run in self._logs.runs():
            told: dict[str, Any] = {}
            with suppress(OSError):
                told = self._reports().known(Job((side_of(run, ALL, NEWEST),)))
            name = shown(run.origins[0].run)
            if rows and not told and name in (together := rows[0].get("steps_ms", {})):
                told = {"step_ms": together[name]}  # as the report on all runs tells
            rows.append(_row(run) | told)
        return _answer(request, {"runs": rows}, "application/json")

    def _report(self, request: Request) -> Response:
        """The state of a report or comparison, which is made while somebody asks by POST."""
        asked = request.args
        runs = {run.id: run for run in self._logs.runs()}
        named = [runs.get(asked[name]) for name in ("base", "run") if asked.get(name)]
        if not named or None in named:
            return _answer(request, {"state": "failed", "error": "This run is gone."}, "application/json", 404)
        spans = asked.get("worker", ALL), asked.get("span", NEWEST)
        sides = [side_of(run, *(spans if run is named[-1] else (ALL, NEWEST))) for run in named if run]
        job = Job(tuple(sides))
        try:
            if request.method == "POST":
                state = self._reports().ask(asked.get("client", ""), job, again="again" in asked)
            else:
                state = self._reports().state(job)
        except OSError as error:
            state = {"state": "failed", "error": clean(str(error))}
        return _answer(request, state, "application/json")

    def _leave(self, request: Request) -> Response:
        """Cancel the wait for a report; it is not made if nobody else waits."""
        self._reports().leave(request.args.get("client", ""))
        return _answer(request, {}, "application/json")

    def _page(self, request: Request) -> Response:
        """A page that was made, with its own policy. It is meant for a sandboxed frame, and anything else saves it."""
        page = self._reports().cache.page(request.args.get("key", ""))
        if not page:
            return _answer(request, "This report is gone. Choose the run again.", "text/plain", 404)
        text = _in_theme(page.decode(), request.args.get("theme", ""))
        policy = _POLICY.search(text)
        headers = {"Content-Security-Policy": policy[1] if policy else "sandbox", "X-Content-Type-Options": "nosniff"}
        if request.headers.get("Sec-Fetch-Dest", "iframe") != "iframe":
            headers["Content-Disposition"] = 'attachment; filename="report.html"'
        return Response(text, 200, headers, content_type="text/html; charset=utf-8")


def _in_theme(page: str, theme: str) -> str:
    """The page in the theme of TensorBoard, whatever the browser prefers; its policy has the new hashes."""
    if theme not in _QUERIES:
        return page
    for ours in (style(), script()):
        themed = ours.replace(_PREFERENCE, _QUERIES[theme])
        page = page.replace(hashed(ours), hashed(themed), 1).replace(ours, themed, 1)
    return page.replace('name="color-scheme" content="light dark"', f'name="color-scheme" content="{theme}"', 1)


def _answer(*given: Any) -> Response:
    answer: Response = Respond(*given)
    return answer


def _row(run: Run) -> dict[str, Any]:
    """A run as the script of the tab takes it."""
    kind = "all" if run.name == EVERYTHING and run.folders == run.roots else "capture" if run.folders else "log"
    recordings = [] if kind == "all" else [(shown(one.worker), shown(one.span)) for one in run.origins]
    name = {"id": run.id, "name": shown(run.name), "kind": kind, "time_ms": run.time_ns // 1_000_000}
    return {**name, "recordings": recordings}


def _file(name: str, kind: str) -> Callable[[Request], Response]:
    return lambda request: _answer(request, (template_folder() / name).read_bytes(), kind)


def _guarded(
    serve: Callable[[Request], Response], methods: tuple[str, ...], refusal: Callable[[Request], str | None]
) -> Callable[[Request], Response]:
    """Refuse other methods, and whoever may not ask: it would start processes, and tell what is in recordings."""

    def served(request: Request) -> Response:
        if (reason := refusal(request)) is not None:
            return _answer(request, reason, "text/plain", 403)
        if request.method not in methods:
            answer = _answer(request, f"Only {' and '.join(methods)}.", "text/plain", 405)
            answer.headers["Allow"] = ", ".join(methods)
            return answer
        return serve(request)

    return served
