"""A study as the service shows it: how it stands, whose it is, and when it is its turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cbe.study.overview import Details, Overview


@dataclass(frozen=True)
class StudyStatus:
    """A study in one line; its state and why are as the service knows them."""

    overview: Overview
    owner: str | None = None
    priority: int = 0
    submitted: datetime | None = None
    queue_position: int | None = None  # from 1 on

    @property
    def study(self) -> str:
        return self.overview.study

    @property
    def state(self) -> str:
        return self.overview.state

    @property
    def latest(self) -> datetime:
        """When anything was last heard of it."""
        times = (self.submitted, self.overview.updated)
        return max((time for time in times if time), default=datetime.min.replace(tzinfo=UTC))

    def matches(self, state: str | None, owner: str | None, search: str | None) -> bool:
        """Whether it is of a state and an owner, and has a word in its name or question."""
        return (
            state in (None, self.state)
            and owner in (None, self.owner)
            and (not search or search.lower() in f"{self.study} {self.overview.question}".lower())
        )

    def to_plain(self) -> dict[str, Any]:
        return {
            **self.overview.to_plain(),
            "owner": self.owner,
            "priority": self.priority,
            "submitted": self.submitted.isoformat() if self.submitted else None,
            "queue_position": self.queue_position,
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> StudyStatus:
        """A standing out of its `to_plain`, whatever else stands there."""
        submitted = plain.get("submitted")
        return cls(
            Overview.from_plain(plain),
            plain.get("owner"),
            plain.get("priority") or 0,
            datetime.fromisoformat(submitted) if submitted else None,
            plain.get("queue_position"),
        )


@dataclass(frozen=True)
class StudyStatusDetails(Details):
    """A study in full, with its standing."""

    study_status: StudyStatus

    def to_plain(self) -> dict[str, Any]:
        return {**self.study_status.to_plain(), **super().to_plain()}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> StudyStatusDetails:
        found = Details.from_plain(plain)
        return cls(found.overview, found.trials, found.optuna, StudyStatus.from_plain(plain))
