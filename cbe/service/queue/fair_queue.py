"""Whose study starts next: by priority, and in turns between those who have equal ones waiting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class Waiting:
    study: str
    owner: str
    submitted: datetime
    priority: int = 0


@dataclass(frozen=True)
class Begun:
    """A study that was started at some time, and may run still."""

    owner: str
    started: datetime
    running: bool


def in_turn(waiting: Sequence[Waiting], begun: Sequence[Begun]) -> list[Waiting]:
    """The queue in the order in which its studies start.

    The highest priority comes first. Among equals the owner with the fewest running studies is next, then the
    one who has waited longest since a study of theirs was started, then the oldest submission.
    """
    running = Counter(each.owner for each in begun if each.running)
    last: dict[str, float] = {}
    for each in begun:
        last[each.owner] = max(last.get(each.owner, 0.0), each.started.timestamp())
    left, order, now = list(waiting), [], max(last.values(), default=0.0)
    while left:
        chosen = min(
            left,
            key=lambda each: (
                -each.priority,
                running[each.owner],
                last.get(each.owner, 0.0),
                each.submitted,
                each.study,
            ),
        )
        left.remove(chosen)
        order.append(chosen)
        now += 1.0  # as if it had been started after all the others
        running[chosen.owner] += 1
        last[chosen.owner] = now
    return order
