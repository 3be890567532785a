#!/usr/bin/env bash
# A tool of an MCP server that returns a class with slots and annotations has no output schema, and no error says so.
#
# Versions: Python 3.11, mcp 2.3.0.
# Behaviour: the Python SDK derives the schema of a tool's structured output from the annotations of the returned class.
# For a plain class with annotations it makes one. With `__slots__` on the same class it makes none: the tool is
# registered, its `output_schema` is missing, and its answers carry text only.
# One would expect the same schema, or an error at registration: `__slots__` changes no annotation.
# Output seen:
#     without slots: schema of ['count']
#     with slots: no schema
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet mcp==2.3.0

cat > "$folder/program.py" <<'PROGRAM'
import asyncio

from mcp.server import MCPServer


class Plain:
    count: int

    def __init__(self, count: int) -> None:
        self.count = count


class Slotted:
    __slots__ = ("count",)
    count: int

    def __init__(self, count: int) -> None:
        self.count = count


def plain() -> Plain:
    return Plain(3)


def slotted() -> Slotted:
    return Slotted(3)


async def main() -> None:
    server = MCPServer("example")
    server.add_tool(plain)
    server.add_tool(slotted)
    for title, tool in zip(("without slots", "with slots"), await server.list_tools(), strict=True):
        schema = tool.output_schema
        print(f"{title}:", f"schema of {sorted(schema['properties'])}" if schema else "no schema")


asyncio.run(main())
PROGRAM

cat > "$folder/expected.txt" <<'EXPECTED'
without slots: schema of ['count']
with slots: no schema
EXPECTED

"$folder/venv/bin/python" "$folder/program.py" 2> "$folder/errors.txt" > "$folder/output.txt" || {
    cat "$folder/errors.txt" >&2
    exit 1
}
cat "$folder/output.txt"
if ! diff -u "$folder/expected.txt" "$folder/output.txt"; then
    echo "The behaviour has changed: see the differences above." >&2
    exit 1
fi
echo "The behaviour is as described."
