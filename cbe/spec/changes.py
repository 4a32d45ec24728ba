"""What a run that goes on may not have changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cbe.errors import ConfigError, Fault

# Where a run happens and how often it speaks may differ; what it computes may not.
FREE = {"data.path", "data.root", "training.device", "training.log_every", "training.compile"}


def require_same(was: dict[str, Any], now: dict[str, Any]) -> None:
    """Refuses a config that differs from the one a run was started with, naming every difference."""
    faults = [
        Fault(
            key,
            f"the run was started with {before!r}, now it is {after!r}",
            "start a new run with another --out",
        )
        for key, before, after in sorted(_differences(was, now), key=lambda found: found[0])
        if key not in FREE
    ]
    if faults:
        raise ConfigError(faults)


def _differences(was: dict[str, Any], now: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any, Any]]:
    for key in was.keys() | now.keys():
        before, after = was.get(key), now.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            yield from _differences(before, after, f"{above}{key}.")
        elif before != after:
            yield f"{above}{key}", before, after
