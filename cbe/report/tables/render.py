"""A table as Markdown that reads well in a terminal, and as LaTeX."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

PAPER = "paper"  # a column whose head begins so stands beside the one before it
WIDTH = 80


@dataclass(frozen=True)
class PaperTable:
    kind: str
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str]


def markdown(table: PaperTable) -> str:
    """The title, the table with its columns aligned, and the notes; a table too wide becomes several."""
    blocks = [_aligned(table, columns) for columns in _parts(table, WIDTH)]
    notes = [
        textwrap.fill(note, WIDTH, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False)
        for note in table.notes
    ]
    return "\n\n".join([f"### {table.title}", *blocks, "\n".join(notes)]) + "\n"


def latex(table: PaperTable) -> str:
    """A `table` environment; it needs the package booktabs."""
    columns = "l" + "r" * (len(table.header) - 1)
    star = "*" if len(table.header) > 4 else ""  # as wide as both columns of a page
    lines = [
        r"% \usepackage{booktabs}",
        rf"\begin{{table{star}}}[t]",
        r"  \centering",
        rf"  \caption{{{_escaped(table.title)}.}}",
        rf"  \label{{tab:{table.kind}}}",
        rf"  \begin{{tabular}}{{@{{}}{columns}@{{}}}}",
        r"    \toprule",
        f"    {_line(table.header)}",
        r"    \midrule",
        *(f"    {_line(row)}" for row in table.rows),
        r"    \bottomrule",
        r"  \end{tabular}",
        *(
            [r"  \par\smallskip", rf"  \parbox{{\linewidth}}{{\footnotesize {_noted(table)}}}"]
            * bool(table.notes)
        ),
        rf"\end{{table{star}}}",
    ]
    return "\n".join(lines) + "\n"


def _parts(table: PaperTable, width: int) -> Iterator[list[int]]:
    """Which columns stand together in so many characters; the first is in every part."""
    sizes = [
        max(len(_cell(row[n])) for row in (table.header, *table.rows)) + 3 for n in range(len(table.header))
    ]
    groups: list[list[int]] = []
    for number, head in enumerate(table.header[1:], start=1):
        if head.startswith(PAPER) and groups:
            groups[-1].append(number)
        else:
            groups.append([number])
    part = [0]
    for group in groups:
        if len(part) > 1 and 1 + sum(sizes[n] for n in [*part, *group]) > width:
            yield part
            part = [0]
        part += group
    yield part


def _aligned(table: PaperTable, columns: Sequence[int]) -> str:
    lines = [[_cell(row[n]) for n in columns] for row in (table.header, *table.rows)]
    sizes = [max(3, *map(len, cells)) for cells in zip(*lines, strict=True)]
    rule = [f":{'-' * (size - 1)}" if n == 0 else f"{'-' * (size - 1)}:" for n, size in enumerate(sizes)]
    padded = [
        [
            text.ljust(size) if n == 0 else text.rjust(size)
            for n, (text, size) in enumerate(zip(line, sizes, strict=True))
        ]
        for line in lines
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in (padded[0], rule, *padded[1:]))


def _cell(text: str) -> str:
    return " ".join(text.replace("\\", "\\\\").replace("|", "\\|").split())


def _line(cells: Sequence[str]) -> str:
    return " & ".join(_escaped(cell) for cell in cells) + r" \\"


def _noted(table: PaperTable) -> str:
    return " ".join(_escaped(note) for note in table.notes)


_LATEX = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{
        "<": "$<$",
        ">": "$>$",
        "±": r"$\pm$",
        "−": "$-$",
        "×": r"$\times$",
        "–": "--",
        "Π": r"$\Pi$",
        "†": r"$\dagger$",
    },
    **{"’": "'", "…": r"\ldots{}", "\n": " "},
}


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(sign, sign) for sign in text)
