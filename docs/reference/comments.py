"""What the source says beside a field."""

from __future__ import annotations

import ast
import inspect
import textwrap


def comments(model: type) -> dict[str, str]:
    """The comment beside each field of a class, or on the line above it."""
    lines = textwrap.dedent(inspect.getsource(model)).splitlines()
    body = ast.parse("\n".join(lines)).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for node in body.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            _, _, beside = lines[(node.end_lineno or node.lineno) - 1].partition("  # ")
            above = lines[node.lineno - 2].strip()
            found[node.target.id] = beside or (above[2:] if above.startswith("# ") else "")
    return found
