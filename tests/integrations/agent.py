"""A coding agent: the client of the official SDK, in a real session with a server of its own."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters

from tests.shared import CHECKOUT
from traceadvisor.integrations.agents.folders import Folders
from traceadvisor.integrations.agents.server import AgentServer

Session = Callable[[Client], Awaitable[None]]


@asynccontextmanager
async def served(*options: str | Path, cwd: Path | None = None) -> AsyncIterator[Client]:
    """A session with a server that was started with some options."""
    words = ["-P", "-m", "traceadvisor", "mcp", *map(str, options)]
    environment = {"PYTHONPATH": str(CHECKOUT)}
    async with Client(StdioServerParameters(command=sys.executable, args=words, cwd=cwd, env=environment)) as client:
        yield client


def in_session(talk: Session, *options: str | Path, cwd: Path | None = None) -> None:
    """Talk to a server; ends within five minutes."""

    async def run() -> None:
        async with asyncio.timeout(300), served(*options, cwd=cwd) as client:
            await talk(client)

    asyncio.run(run())


def in_process(talk: Session, *options: str | Path) -> None:
    """Talk to a server in this process, which is quicker; it was started with the same options."""
    words = [str(one) for one in options]
    roots = [Path(after) for before, after in pairwise(words) if before == "--root"]
    allowed = {"may_run": "--allow-run" in words, "may_write": "--allow-write" in words}

    async def run() -> None:
        async with asyncio.timeout(300), Client(AgentServer(Folders.of(roots), **allowed).server) as client:
            await talk(client)

    asyncio.run(run())


async def called(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """The structured answer of a call, which also stands in its text."""
    result = await client.call_tool(tool, arguments)
    answer: dict[str, Any] = result.structured_content
    (text,) = result.content
    assert json.loads(text.text) == answer  # type: ignore[union-attr]  # it is text
    assert result.is_error == ("error" in answer), answer
    return answer
