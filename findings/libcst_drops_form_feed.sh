#!/usr/bin/env bash
# LibCST gives a module back without a form feed that stands right before a statement.
#
# Versions: Python 3.11, libcst 1.9.0.
# Behaviour: `parse_module(source).bytes` lacks a form feed (0x0c) at the beginning of a line that holds a statement.
# Python accepts it there, and older sources separate their parts with it. On a line of its own it is kept.
# One would expect the same bytes: a concrete syntax tree is documented to keep all of the formatting.
# Output seen:
#     own line: kept
#     before a statement: dropped
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet libcst==1.9.0

cat > "$folder/program.py" <<'PROGRAM'
import libcst

SOURCES = {
    "own line": b"first = 1\n\x0c\nsecond = 2\n",
    "before a statement": b"first = 1\n\x0csecond = 2\n",
}
for name, source in SOURCES.items():
    compile(source, name, "exec")
    print(f"{name}:", "kept" if libcst.parse_module(source).bytes == source else "dropped")
PROGRAM

cat > "$folder/expected.txt" <<'EXPECTED'
own line: kept
before a statement: dropped
EXPECTED

"$folder/venv/bin/python" "$folder/program.py" > "$folder/output.txt"
cat "$folder/output.txt"
if ! diff -u "$folder/expected.txt" "$folder/output.txt"; then
    echo "The behaviour has changed: see the differences above." >&2
    exit 1
fi
echo "The behaviour is as described."
