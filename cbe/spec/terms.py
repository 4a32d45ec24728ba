"""The terms that all parts of the program share."""

from __future__ import annotations

import re
from typing import Literal, get_args

Pair = tuple[int, int]  # seed, label split
Role = Literal["search", "confirm"]  # what a trial is for
Direction = Literal["minimize", "maximize"]  # which way an objective is better
Preset = Literal["paper", "base"]  # a fixed config: searched and confirmed beside those that are sampled
PRESETS: tuple[Preset, ...] = get_args(Preset)

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


def is_name(name: str) -> bool:
    """Whether a study can have this name, which names its folder, too."""
    return bool(_NAME.fullmatch(name)) and ".." not in name
