"""The texts that stand under the fields of a class, which are its documentation."""

from __future__ import annotations

import ast
import inspect
import textwrap
from itertools import pairwise


def field_docs(owner: type) -> dict[str, str]:
    """The string below each annotated field of a class, by the field's name."""
    body = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
    assert isinstance(body, ast.ClassDef)  # noqa: S101  # the source of a class
    docs: dict[str, str] = {}
    for field, below in pairwise(body.body):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                docs[name] = inspect.cleandoc(text)
    return docs
