"""Which config ranks first, and what is still to come, as every screen of a running study says it."""

from __future__ import annotations

from cbe.configs import Leader
from cbe.report.wording import called, leads, value
from cbe.study.progress_view import Shown, done
from cbe.words import to_come


def leading(first: Leader, metric: str) -> str:
    """The first config of the answer, in its words; a mean says of how many runs it is."""
    said = leads(called(first.preset or first.trial), first.role, value(metric, first.mean))
    return f"{said} (n = {first.n})" if first.n > 1 else said


def upcoming(shown: Shown) -> str | None:
    """What a study that goes on has still to do."""
    if shown.stage not in ("search", "confirm"):
        return None
    trials = max(0, shown.trials - done(shown, "search"))
    return to_come(trials, max(0, shown.confirm_total - done(shown, "confirm")), shown.searching)
