"""What a trial's process says while it trains: logs/TRIAL.txt in the study's folder.

Lines of its own (where it began, each evaluation, what ended it) and whatever is printed or warned of
meanwhile. Kept every few seconds and at the end; a process that takes over goes on in the same file.
"""

from __future__ import annotations

import io
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from datetime import UTC, datetime
from typing import Any

from cbe.errors import CbeError
from cbe.spec.metrics import METRICS
from cbe.store.folder import StudyFolder
from cbe.store.redact import redact
from cbe.study.periodic import outlast
from cbe.words import figure

EVERY_S = 5.0
MAX_CHARACTERS = 200_000  # characters of a trial; older ones are dropped
LINE = 10_000  # characters of a line that does not end


class TrialLog(io.TextIOBase):
    """Takes what is written as lines, each with its time."""

    def __init__(self, folder: StudyFolder, trial: str) -> None:
        self._folder, self._name = folder, _name(trial)
        self._text, self._begun = outlast(lambda: read_log(folder, trial)), ""
        self._kept_at, self._kept = -EVERY_S, self._text

    def write(self, text: str) -> int:
        *whole, begun = (self._begun + text).split("\n")
        self._begun = _drawn(begun)[-LINE:]
        now = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} "
        self._text += "".join(f"{now}{redact(_drawn(line).rstrip())}\n" for line in whole if line.strip())
        if len(self._text) > MAX_CHARACTERS:  # a half at a time, at the end of a line
            self._text = self._text[-MAX_CHARACTERS // 2 :].partition("\n")[2]
        return len(text)

    def say(self, line: str) -> None:
        """A line of our own."""
        self.write(("\n" if self._begun else "") + line + "\n")

    def evaluated(self, metrics: Mapping[str, Any], steps: int) -> None:
        """A line for each evaluation."""
        if "step" in metrics:
            known = [each for each in METRICS.values() if each.log and metrics.get(each.name) is not None]
            told = ", ".join(f"{each.title} {figure(each.name, metrics[each.name])}" for each in known)
            self.say(f"step {metrics['step']} of {steps}: {told}")

    def keep(self, at_once: bool = False) -> None:
        """Puts the file into the store; where that fails now, the next time."""
        now = time.monotonic()
        if self._text == self._kept or (now - self._kept_at < EVERY_S and not at_once):
            return
        self._kept_at = now
        with suppress(CbeError):
            self._folder.write(self._name, self._text.encode())
            self._kept = self._text


@contextmanager
def logged(folder: StudyFolder, trial: str) -> Iterator[TrialLog]:
    """Keeps what is said in the block, and what ended it where that was an error."""
    log = TrialLog(folder, trial)
    with redirect_stdout(log), redirect_stderr(log):
        try:
            yield log
        except CbeError as error:  # which says all there is to say
            log.say(f"{type(error).__name__}: {error}")
            raise
        except Exception:
            log.say(traceback.format_exc())
            raise
        finally:
            log.say("")  # ends a line that was begun
            log.keep(at_once=True)


def read_log(folder: StudyFolder, trial: str) -> str:
    """What there is of a trial's log; empty where it has said nothing yet."""
    return (folder.read(_name(trial)) or b"").decode(errors="replace")


def _drawn(line: str) -> str:
    """What is seen of a line that was drawn over, as a bar of progress is."""
    end = len(line.rstrip("\r"))
    return line[line.rfind("\r", 0, end) + 1 :]


def _name(trial: str) -> str:
    return f"logs/{trial}.txt"
