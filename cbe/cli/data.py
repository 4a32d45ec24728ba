"""What a command says about a config's data before anything is trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cbe.errors import UnreachableData
from cbe.spec import StudyConfig, TrainConfig

if TYPE_CHECKING:
    from cbe.data import Facts


@dataclass(frozen=True)
class DataSummary:
    """The facts of the data, or why they cannot be had here; and what is odd in the study."""

    facts: Facts | None
    note: str | None = None
    warnings: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        return [*(self.facts.lines() if self.facts else [self.note or ""]), *self.warnings]

    def to_plain(self) -> dict[str, Any]:
        data = self.facts.to_plain() if self.facts else None
        return {"data": data, "note": self.note, "warnings": list(self.warnings)}


def data_summary(config: TrainConfig | StudyConfig) -> DataSummary:
    """Looks at a config's data without decoding images of one's own; refuses data that cannot be used."""
    from cbe.cli.console import say
    from cbe.data import look

    warnings: tuple[str, ...] = ()
    if isinstance(config, StudyConfig):
        warnings = config.warnings
        config = config.train_config({}, *config.pairs[0])
    facts, note = None, None
    try:
        facts = look(config, say)
        if facts is None:
            note = f"{config.data.source}: not in {config.data.root} yet; training downloads it first."
    except UnreachableData as error:
        # The machines that train may reach a bucket that this one does not.
        note = f"Cannot read the data from this machine: {error}"
    return DataSummary(facts, note, warnings)


def print_data_summary(config: StudyConfig) -> None:
    """Says on stderr what a study finds in its data."""
    from cbe.cli.console import say

    for line in data_summary(config).lines():
        say(line)
