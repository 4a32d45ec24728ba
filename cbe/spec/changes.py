"""What a run or a study that goes on may not have changed."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from cbe.errors import ConfigError, Fault

# Where a run happens and how often it speaks may differ; what it computes may not.
FREE = {"data.path", "data.root", "training.device", "training.log_every", "training.compile"}

# How a study searches and at what cost may differ too; what its trials compute and are compared by may not.
FREE_IN_A_STUDY = FREE | {
    *("question", "search", "sampler", "scheduler", "seeds", "label_splits", "confirm"),
    *("budget", "resources", "storage"),
}


@dataclass(frozen=True)
class Difference:
    key: str  # dotted
    before: Any
    after: Any

    def among(self, keys: Collection[str]) -> bool:
        """Whether this is one of the keys, or below one of them."""
        return any(self.key == key or self.key.startswith(f"{key}.") for key in keys)


def differences(was: dict[str, Any], now: dict[str, Any]) -> list[Difference]:
    """All that differs between two plain configs, by key."""
    return sorted(_differences(was, now), key=lambda found: found.key)


def require_same(
    was: dict[str, Any],
    now: dict[str, Any],
    *,
    free: Collection[str] = FREE,
    what: str = "run",
    hint: str = "start a new run with another --out",
) -> None:
    """Refuses a config that differs in more than `free` from the one started with, naming all of it."""
    faults = [
        Fault(found.key, f"the {what} was started with {found.before!r}, now it is {found.after!r}", hint)
        for found in differences(was, now)
        if not found.among(free)
    ]
    if faults:
        raise ConfigError(faults)


def _differences(was: dict[str, Any], now: dict[str, Any], above: str = "") -> Iterator[Difference]:
    for key in was.keys() | now.keys():
        before, after = was.get(key), now.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            yield from _differences(before, after, f"{above}{key}.")
        elif before != after:
            yield Difference(f"{above}{key}", before, after)
