"""What is said of a trial that is pointed at."""

from __future__ import annotations

from cbe.report.page.evidence import Evidence, point_of
from cbe.report.page.panel import escape, shown
from cbe.store.rows import Row

_MAX_LINES = 14  # lines


def about(evidence: Evidence, row: Row) -> str:
    """A trial and its point, a line a value."""
    called, state = evidence.name(row), row["state"]
    config = f" ({escape(called)})" if called not in ("", row["trial"]) else ""
    head = f"<b>{escape(row['trial'])}</b>{config}, {escape(state)}"
    if row["steps"]:
        head += f" at {row['step'] or 0:,}/{row['steps']:,}"
    if row["error_class"]:
        head += f"<br>{escape(row['error_class'])}"
    values = list(point_of(row).items())
    lines = [f"{escape(key)}: {escape(shown(value))}" for key, value in values[:_MAX_LINES]]
    more = [f"and {len(values) - _MAX_LINES} more"] if len(values) > _MAX_LINES else []
    return "<br>".join([head, *lines, *more])
