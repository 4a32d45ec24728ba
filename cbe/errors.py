"""Everything this package raises on purpose.

CbeError
├── InputError           the user can correct it; exit code 2
│   ├── ConfigError      a study or training file, or a --set value: carries every fault at once
│   ├── DataError        a data set, an image, a split or a list of indices
│   │   └── UnreachableData  a bucket that this machine cannot read; another one may
│   └── StoreError       a store that cannot be read, now or at all
└── RunError             the run broke; exit code 1
    ├── NonFiniteLoss    a loss became NaN or infinite; the same config will do it again
    ├── Superseded       another process has taken over what this one did; it must write nothing more
    ├── CheckpointError  a checkpoint could not be written or read; `retry` says whether trying again helps
    └── Paused           a trial was told to leave its process, and has kept a checkpoint; goes on elsewhere
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class CbeError(Exception):
    """Base of all errors raised on purpose; its text is shown to the user as it stands."""

    exit_code = 1
    retry = False


class InputError(CbeError):
    exit_code = 2


@dataclass(frozen=True)
class Fault:
    """One thing wrong with a config: where, what was given, what is wanted and what to do next."""

    where: str
    problem: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.problem}" + (f"; {self.hint}" if self.hint else "")


class ConfigError(InputError):
    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__(self.faults)  # what it is made of, so that it survives the way between processes

    def __str__(self) -> str:
        return "\n".join(str(fault) for fault in self.faults)


class DataError(InputError):
    pass


class UnreachableData(DataError):
    pass


class StoreError(InputError):
    pass


class RunError(CbeError):
    pass


class NonFiniteLoss(RunError):
    def __init__(self, step: int, terms: dict[str, float]) -> None:
        self.step = step
        self.terms = terms
        super().__init__(step, terms)

    def __str__(self) -> str:
        listed = ", ".join(f"{name} {value:.4g}" for name, value in self.terms.items())
        return (
            f"loss is not finite at step {self.step} ({listed}); a checkpoint from before is kept; "
            "try a smaller training.lr, or a smaller weight of the term that grew, in another --out"
        )


class Paused(RunError):
    retry = True


class Superseded(RunError):
    pass


class CheckpointError(RunError):
    def __init__(self, message: str, *, retry: bool = False) -> None:
        self.retry = retry
        super().__init__(message)
