"""Drives a real browser: loads a page, runs a script in it, and returns what the script answers."""

import json
import re
from pathlib import Path
from typing import Any

from tests.children import run

SWITCHES = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
DARK = "--blink-settings=preferredColorScheme=0"

_POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
_ANSWER = re.compile(r'<pre id="answer">(.*?)</pre>', re.DOTALL)


def dumped(chromium: str, page: Path, *switches: str) -> str:
    """The document after loading, as text."""
    profile = page.parent / "profile"
    command = [chromium, *SWITCHES, f"--user-data-dir={profile}", "--dump-dom", *switches, page.as_uri()]
    return run(*command, check=True).stdout


def asked(chromium: str, content: str, script: str, folder: Path, *switches: str) -> Any:
    """What a script answers on a page whose policy was taken out, so that the script may run: see `answered`."""
    bare = _POLICY.sub("", content)
    assert bare != content, "the page has no policy"
    return answered(chromium, bare, script, folder, *switches)


def answered(chromium: str, content: str, script: str, folder: Path, *switches: str) -> Any:
    """What a script answers on a page without a policy.

    Args:
        chromium: path of the browser.
        content: the page.
        script: body of an asynchronous function; what it returns is the answer.
        folder: where the page is written.
        switches: further switches of the browser.
    """
    answer = (
        "<script>(async () => { let answer; try { answer = await (async () => {" + script + "\n})(); }"
        " catch (error) { answer = { error: String(error) }; }"
        " const text = document.createElement('pre'); text.id = 'answer'; text.textContent = JSON.stringify(answer);"
        " document.body.append(text); })();</script></body>"
    )
    folder.mkdir(exist_ok=True)
    (folder / "asked.html").write_text(content.replace("</body>", answer), encoding="utf-8")
    dom = dumped(chromium, folder / "asked.html", "--virtual-time-budget=20000", "--window-size=1280,800", *switches)
    found = _ANSWER.search(dom)
    assert found is not None, "the script did not end"
    text = found[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    return json.loads(text)
