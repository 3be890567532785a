"""A real TensorBoard, started as a user starts it."""

import json
import re
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlencode

from tests.children import added, started
from tests.waiting import wait_until

DATA = "data/plugin/traceadvisor"
STARTING = ("report", "leave")
NONE: Mapping[str, str] = MappingProxyType({})


class Server:
    """What a TensorBoard answers."""

    def __init__(self, address: str, log: Path) -> None:
        self.address, self.log = address, log

    def get(
        self, path: str, headers: Mapping[str, str] = MappingProxyType({}), method: str = "GET", **values: str
    ) -> tuple[int, bytes, dict[str, str]]:
        """Status, content and headers of an answer."""
        query = f"?{urlencode(values)}" if values else ""
        request = urllib.request.Request(f"{self.address}{path}{query}", headers=dict(headers), method=method)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
                return answer.status, answer.read(), dict(answer.headers)
        except urllib.error.HTTPError as error:
            return error.code, error.read(), dict(error.headers)

    def ask(self, name: str, **values: str) -> Any:
        """What the tab's part of the server answers."""
        method = "POST" if name in STARTING else "GET"
        return json.loads(self.get(f"{DATA}/{name}", {}, method, **values)[1])

    def runs(self) -> dict[str, Any]:
        """The runs by name."""
        return {run["name"]: run for run in self.ask("runs")["runs"]}

    def reported(self, **values: str) -> Any:
        """The last state of a report."""
        wait_until(lambda: self.ask("report", client="test", **values)["state"] in {"done", "failed"})
        return self.ask("report", client="test", **values)


ALONE = """
from tensorboard import default, main
every = default._iter_entry_points
default._iter_entry_points = lambda group: [one for one in every(group) if "torch_tb_profiler" not in one.value]
main.run_main()
"""


@contextmanager
def tensorboard(folder: Path, *arguments: str, is_alone: bool = False, **variables: str) -> Iterator[Server]:
    """TensorBoard on a free port, with or without torch-tb-profiler; files of its own go to a folder."""
    folder.mkdir(exist_ok=True)
    log = folder / "tensorboard.log"
    command = (
        sys.executable,
        *(("-c", ALONE) if is_alone else ("-m", "tensorboard.main")),
        "--port=0",
        "--reload_interval=1",
        *arguments,
    )
    environment = added(XDG_CACHE_HOME=str(folder / "cache"), PYTHONUNBUFFERED="1", **variables)
    with (
        log.open("wb") as stderr,
        started(*command, env=environment, cwd=folder, stdout=stderr, stderr=stderr, new_session=True) as child,
    ):
        found: list[str] = []

        def is_up() -> bool:
            assert child.poll() is None, log.read_text()
            found[:] = re.findall(r"at (http://\S+)", log.read_text())
            return bool(found)

        wait_until(is_up)
        yield Server(re.sub(r"//[^:/]+", "//localhost", found[0]), log)
