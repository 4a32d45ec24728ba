"""What the source says beside a field."""

from __future__ import annotations

import ast
import inspect
import textwrap

from pydantic import BaseModel


def comments(model: type) -> dict[str, str]:
    """The comment beside each field of a class, or on the line above it; also those of what it extends."""
    extended = [base for base in model.__bases__ if issubclass(base, BaseModel) and base is not BaseModel]
    found = {name: said for base in extended for name, said in comments(base).items()}
    lines = textwrap.dedent(inspect.getsource(model)).splitlines()
    body = ast.parse("\n".join(lines)).body[0]
    assert isinstance(body, ast.ClassDef)
    for node in body.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            _, _, beside = lines[(node.end_lineno or node.lineno) - 1].partition("  # ")
            above = lines[node.lineno - 2].strip()
            found[node.target.id] = beside or (above[2:] if above.startswith("# ") else "")
    return found
