"""Numbers as the page writes them."""

from __future__ import annotations

import math

from cbe.spec.metrics import METRICS
from cbe.words import NOTHING


def axis_title(metric: str) -> str:
    about = METRICS[metric]
    return f"{about.title}, {about.unit.sign}" if about.unit.sign else about.title


def usd(amount: float | None) -> str:
    """An amount of money; a dash where there is no price, or nothing was spent.

    >>> usd(1234.5), usd(0.0)
    ('$1,234.50', '–')
    """
    return f"${amount:,.2f}" if amount and math.isfinite(amount) else NOTHING
