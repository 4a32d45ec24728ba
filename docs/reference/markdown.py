"""Markdown, written by programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with a pipe between cells.

    >>> print(table(["key", "means"], [["a|b", "either"]]))
    | key | means |
    | --- | --- |
    | a\\|b | either |
    """
    lines = [heads, ["---"] * len(heads), *([_cell(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def code(text: object) -> str:
    """Text in a fixed-width font.

    >>> code("a`b")
    '`` a`b ``'
    """
    plain = str(text)
    return f"`` {plain} ``" if "`" in plain else f"`{plain}`"


def sentence(text: str) -> str:
    """Text that begins with a capital letter and ends with a full stop.

    >>> sentence("seed of the sampler")
    'Seed of the sampler.'
    """
    plain = " ".join(text.split())
    if not plain:
        return ""
    word = plain.split()[0]
    is_name = not plain[0].isascii() or any(char in word[:-1] for char in "_=.(`-") or word == "null:"
    first = plain if is_name else plain[0].upper() + plain[1:]
    return first if first.endswith((".", "?", "!", "…")) else f"{first}."


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
