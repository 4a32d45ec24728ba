r"""Equations as MathML, which browsers draw without JavaScript.

Markdown has them as GitHub does: a fence of `math`, or $`\tau`$ within a line.
"""

from __future__ import annotations

import re

from latex2mathml.converter import convert

_BLOCK = re.compile(r"^```math\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"\$`([^`]+)`\$")
_PLACE = re.compile(r"(<p>)?MATHML(\d+)END(?(1)</p>)")


def taken_out(markdown: str) -> tuple[str, list[str]]:
    """Markdown with a mark in place of each equation, and the equations: Markdown would change them."""
    found: list[str] = []

    def block(match: re.Match[str]) -> str:
        found.append(f'<div class="equation">{convert(match[1].strip(), display="block")}</div>')
        return f"MATHML{len(found) - 1}END"

    def inline(match: re.Match[str]) -> str:
        found.append(convert(match[1]))
        return f"MATHML{len(found) - 1}END"

    return _INLINE.sub(inline, _BLOCK.sub(block, markdown)), found


def put_back(html: str, found: list[str]) -> str:
    """HTML with the equations in place of their marks."""
    return _PLACE.sub(lambda match: found[int(match[2])], html)
