"""What a command says about a config's data before anything is trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cbe.errors import UnreachableData
from cbe.spec import StudyConfig, TrainConfig

if TYPE_CHECKING:
    from cbe.data import Facts


@dataclass(frozen=True)
class Seen:
    """The facts of the data; where they cannot be had here, why."""

    facts: Facts | None
    note: str | None = None

    def lines(self) -> list[str]:
        return self.facts.lines() if self.facts else [self.note or ""]

    def to_plain(self) -> dict[str, Any]:
        return {"data": self.facts.to_plain() if self.facts else None, "note": self.note}


def seen(config: TrainConfig | StudyConfig) -> Seen:
    """Looks at a config's data without decoding images of one's own; refuses data that cannot be used."""
    from cbe.cli.talk import say
    from cbe.data import look

    if isinstance(config, StudyConfig):
        config = config.train_config({}, *config.pairs[0])
    try:
        facts = look(config, say)
    except UnreachableData as error:
        # The machines that train may reach a bucket that this one does not.
        return Seen(None, f"The data could not be looked at from here: {error}")
    if facts is None:
        return Seen(
            None, f"{config.data.source}: not in {config.data.root} yet; training downloads it first."
        )
    return Seen(facts)


def tell(config: StudyConfig) -> None:
    """Says on stderr what a study finds in its data."""
    from cbe.cli.talk import say

    for line in seen(config).lines():
        say(line)
