#!/usr/bin/env bash
# Fields of `msgspec.Meta(extra_json_schema=...)` do not override what msgspec generates, although its docstring says so.
#
# Versions: Python 3.11, msgspec 0.22.0 and 0.23.0.
# Behaviour: the docstring of `Meta` promises that `extra_json_schema` is merged with the generated schema, overriding
# conflicting fields. It is the other way round: what msgspec generates replaces the field, without a message. Only
# fields that msgspec does not generate are kept. So a release that generates a new field takes away one's own: 0.23 adds
# `propertyNames` to mappings with a fixed set of keys, and drops the `propertyNames` that were given for 0.22.
# One would expect the given fields in all of these schemas.
# Output seen:
#     msgspec 0.22.0: minimum 0, items integer, keys ['b', 'a']
#     msgspec 0.23.0: minimum 0, items integer, keys ['a', 'b']
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cat > "$folder/program.py" <<'PROGRAM'
from typing import Annotated, Literal

import msgspec


def with_extra(kind, **fields):
    return Annotated[kind, msgspec.Meta(extra_json_schema=fields)]


number = msgspec.json.schema(Annotated[int, msgspec.Meta(ge=0, extra_json_schema={"minimum": 5})])
numbers = msgspec.json.schema(with_extra(list[int], items={"type": "string"}))
mapping = msgspec.json.schema(with_extra(dict[Literal["b", "a"], int], propertyNames={"enum": ["b", "a"]}))
print(
    f"msgspec {msgspec.__version__}: minimum {number['minimum']}, items {numbers['items']['type']}, "
    f"keys {mapping['propertyNames']['enum']}"
)
PROGRAM

cat > "$folder/expected.txt" <<'EXPECTED'
msgspec 0.22.0: minimum 0, items integer, keys ['b', 'a']
msgspec 0.23.0: minimum 0, items integer, keys ['a', 'b']
EXPECTED

for version in 0.22.0 0.23.0; do
    "${PYTHON:-python3}" -m venv --clear "$folder/venv"
    "$folder/venv/bin/pip" install --quiet "msgspec==$version"
    "$folder/venv/bin/python" "$folder/program.py" >> "$folder/output.txt"
done
cat "$folder/output.txt"
if ! diff -u "$folder/expected.txt" "$folder/output.txt"; then
    echo "The behaviour has changed: see the differences above." >&2
    exit 1
fi
echo "The behaviour is as described."
