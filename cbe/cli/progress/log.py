"""A study as lines: one for each trial that ends, and one of progress a minute."""

from __future__ import annotations

import math
from collections.abc import Iterator

from cbe.cli.progress.leader import leading
from cbe.store.rows import Row
from cbe.study.progress_view import Shown, done
from cbe.words import clean, figure, first_line, span

EVERY_S = 60.0


class Log:
    """Says what has happened since it was last asked."""

    def __init__(self, shown: Shown) -> None:
        self._shown = shown
        self._states = {row["trial"]: row["state"] for row in shown.rows()}
        self._told_s = 0.0
        self._reason = shown.stop_reason
        self._problem: str | None = None
        self._said: str | None = None

    def lines(self, now_s: float) -> Iterator[str]:
        """The new lines, `now_s` after the first look."""
        shown, reason, problem = self._shown, self._shown.stop_reason, self._shown.problem
        if reason and reason != self._reason:
            yield f"stopping: {clean(reason)}; running trials keep their last checkpoint"
        self._reason = reason
        for row in shown.rows():
            before, state = self._states.get(row["trial"]), row["state"]
            self._states[row["trial"]] = state
            if state != before and state not in ("running", "paused"):
                yield self._ended(row)
        if problem != self._problem:
            if problem:
                yield f"results cannot be written and are kept in memory: {clean(problem)}"
            elif self._problem:
                yield "results are written again; nothing was lost"
            self._problem = problem
        for said in shown.said[-1:]:
            if said != self._said:
                self._said = said
                yield clean(said)
        if now_s - self._told_s >= EVERY_S:
            self._told_s = now_s
            yield self.so_far()

    def so_far(self) -> str:
        """How far the study is."""
        shown = self._shown
        parts = [f"search {done(shown, 'search')}/{shown.trials}"]
        if shown.confirm_total:
            parts.append(f"confirm {done(shown, 'confirm')}/{shown.confirm_total}")
        parts.append(f"{len(shown.rows(state='running'))} running")
        if paused := len(shown.rows(state="paused")):
            parts.append(f"{paused} paused")
        first, eta = shown.leader, shown.eta_s
        if first:
            parts.append(f"so far {leading(first, shown.metric)}")
        if eta:
            parts.append(f"{span(*eta)} left")
        return ", ".join(parts)

    def _ended(self, row: Row) -> str:
        trial, state = row["trial"], row["state"]
        if state == "infeasible":
            return f"{trial} infeasible: {first_line(row['error_text'])}"
        at = f"{trial} {state} at {row['step'] or 0}/{row['steps']}"
        if state == "failed":
            return f"{at}: {clean(row['error_class'])}: {first_line(row['error_text'])}"
        value = row["objective"]
        if value is None or not math.isfinite(value):
            return at
        return f"{at}: {_named(self._shown.metric)} {figure(self._shown.metric, value)}"


def _named(metric: str) -> str:
    return metric.replace("_", " ")
