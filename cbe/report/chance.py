"""Whether an error is one that guessing would make, or worse."""

from __future__ import annotations

import math

_ONE_SIDED = 1.645  # standard errors: 95 % of guessers stay above guessing's error less so many


def at_chance(error: float, classes: int, images: int) -> str | None:
    """What to call an error on `images` validation images, equally many a class, where guessing explains it.

    >>> at_chance(0.46, classes=2, images=50), at_chance(0.3, classes=2, images=50)
    ('at chance level (50.0 % for 2 classes)', None)
    >>> at_chance(0.7, classes=2, images=50)
    'worse than chance (50.0 % for 2 classes)'
    """
    if classes < 2 or images < 1:
        return None
    guess = 1 - 1 / classes
    noise = _ONE_SIDED * math.sqrt(guess * (1 - guess) / images)
    if error < guess - noise:
        return None
    side = "worse than chance" if error > guess + noise else "at chance level"
    return f"{side} ({100 * guess:.1f} % for {classes} classes)"
