"""Drives a real browser step by step: opens a page, runs scripts in its frames, and takes pictures.

The browser is told what to do over two pipes, as its protocol for developer tools has it.
"""

import base64
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from select import select
from typing import Any

from tests.children import started
from tests.rendering.browsing import SWITCHES
from tests.waiting import wait_until

_ONE_PROCESS = ("--disable-site-isolation-trials", "--disable-features=IsolateSandboxedIframes")
"""Frames of other origins stay in the page's process, so that a script can be run in each."""


class Tab:
    """A tab of the browser."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._number, self._rest = 0, b""
        self._session: str | None = None
        self.requests: list[str] = []
        """The addresses of everything that was loaded."""

        self.messages: list[str] = []
        """What scripts and the browser wrote to the console."""

        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._call(f"{domain}.enable")

    def open(self, address: str, width: int = 1400, height: int = 1000, *, dark: bool = False) -> None:
        """Load a page."""
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self._call("Emulation.setEmulatedMedia", features=scheme)
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self._call("Page.navigate", url=address)

    def frames(self) -> dict[str, str]:
        """The frames of the page: their ids by the ends of their addresses, behind the last slash."""
        found: dict[str, str] = {}
        waiting = [self._call("Page.getFrameTree")["frameTree"]]
        while waiting:
            tree = waiting.pop()
            found[tree["frame"]["url"].rpartition("/")[2].partition("?")[0]] = tree["frame"]["id"]
            waiting += tree.get("childFrames", [])
        return found

    def ask(self, frame: str, script: str) -> Any:
        """The value of an expression in a frame; None if the frame is not there yet or its script fails."""
        if frame not in (frames := self.frames()):
            return None
        world = self._call("Page.createIsolatedWorld", frameId=frames[frame])
        if "executionContextId" not in world:  # the frame is loading
            return None
        given = {"expression": script, "contextId": world["executionContextId"]}
        answer = self._call("Runtime.evaluate", returnByValue=True, awaitPromise=True, **given)
        return answer.get("result", {}).get("value")

    def wait(self, frame: str, script: str) -> Any:
        """The value of an expression as soon as it is true."""
        wait_until(lambda: bool(self.ask(frame, script)))
        return self.ask(frame, script)

    def click(self, frame: str, elements: str, text: str) -> None:
        """Click the first element with a text as soon as it is there; of a choice, take the option with that text."""
        self.wait(
            frame,
            f"""(() => {{
                const found = [...document.querySelectorAll({json.dumps(elements)})]
                    .find((one) => one.textContent.includes({json.dumps(text)}));
                if (found?.tagName === 'OPTION') {{
                    found.parentElement.value = found.value;
                    found.parentElement.dispatchEvent(new Event('change'));
                }} else found?.click();
                return Boolean(found);
            }})()""",
        )

    def picture(self, path: Path) -> None:
        """Save what the tab shows."""
        path.write_bytes(base64.b64decode(self._call("Page.captureScreenshot")["data"]))

    def _call(self, method: str, **given: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": given}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while (answer := self._received()).get("id") != self._number:
            self._note(answer)
        result: dict[str, Any] = answer.get("result", {})
        return result

    def _received(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            assert select([self._answers], [], [], 60)[0], "the browser does not answer"
            read = os.read(self._answers, 1 << 20)
            assert read, "the browser ended"
            self._rest += read
        first, _, self._rest = self._rest.partition(b"\0")
        answer: dict[str, Any] = json.loads(first)
        return answer

    def _note(self, event: dict[str, Any]) -> None:
        given = event.get("params", {})
        match event.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(given["request"]["url"])
            case "Log.entryAdded":
                self.messages.append(given["entry"]["text"])
            case "Runtime.exceptionThrown":
                self.messages.append(str(given["exceptionDetails"]))


@contextmanager
def browser(chromium: str, folder: Path, *more_switches: str) -> Iterator[Tab]:
    """A browser with one tab; it ends with the block."""
    pipes = [folder / "commands", folder / "answers"]
    for pipe in pipes:
        os.mkfifo(pipe)
    switches = [
        *SWITCHES,
        *_ONE_PROCESS,
        f"--user-data-dir={folder / 'profile'}",
        "--remote-debugging-pipe",
        *more_switches,
    ]
    shell = ("sh", "-c", 'exec "$0" "$@" 3<"$COMMANDS" 4>"$ANSWERS" 2>/dev/null')
    names = os.environ | {"COMMANDS": str(pipes[0]), "ANSWERS": str(pipes[1])}
    with started(*shell, chromium, *switches, "about:blank", env=names):
        commands, answers = os.open(pipes[0], os.O_RDWR), os.open(pipes[1], os.O_RDWR)
        try:
            yield Tab(commands, answers)
        finally:
            os.close(commands)
            os.close(answers)
