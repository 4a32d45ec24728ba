"""Text that stands beside the files it is about, shown here, too."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def clusters() -> str:
    """The guide to the cluster files, without its title; files of the checkout are named, not linked."""
    _, _, text = (ROOT / "cluster" / "README.md").read_text().partition("\n")
    return re.sub(r"\[([^\]]+)\]\((?!http|#)[^)]+\)", r"\1", f"## Files\n{text}")
