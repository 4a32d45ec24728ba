"""One writer a study: each driver writes in an epoch of its own, and a later one shuts out the earlier ones.

    claims/00000003.json                 who drives the study in epoch 3
    claims/00000003.fenced, .closed      no file of epoch 3 follows: it was shut out, or has written its last
    claims/00000003.ended                and its driver has said its last word
    metrics/00000003-00000017.parquet    the eighteenth file of a table in epoch 3

The rule: **all of these are created where there is nothing, never replaced, and a writer may only create the
next number of its own epoch.** Whoever takes epoch 4 first creates, in each table, an empty file under the
very name that epoch 3 would write next. A driver of epoch 3 that was only asleep then cannot write that file
nor any other; it learns so by the attempt itself, and there is no moment between a check and a write. What it
had written before is there when epoch 4 reads the tables. Every file of a table counts: readers, and programs
that know nothing of epochs, need no rule. The last file of each epoch that is not closed stays when
tables are merged (`kept`), since its number must not become free again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cbe.errors import StoreError, Superseded
from cbe.store.schema import TABLES, build

if TYPE_CHECKING:
    from cbe.store.folder import StudyFolder

CLAIMS = "claims"

_NUMBERED = re.compile(r"(\d{8})-(\d{8})\.parquet")
_MARK = re.compile(r"(\d{8})\.(json|fenced|closed|ended)")


def epochs(folder: StudyFolder) -> dict[int, set[str]]:
    """What is known of every epoch so far, by the ends of its names."""
    found: dict[int, set[str]] = {}
    for name in folder.list(CLAIMS):
        if mark := _MARK.fullmatch(name):
            found.setdefault(int(mark[1]), set()).add(mark[2])
    return found


def newest(folder: StudyFolder) -> int:
    """The epoch that may write; 0 where nobody has driven the study."""
    return max(epochs(folder), default=0)


def holder(folder: StudyFolder, epoch: int) -> dict[str, Any]:
    """Who took an epoch."""
    found: dict[str, Any] = json.loads(folder.read(f"{CLAIMS}/{epoch:08d}.json") or "{}")
    return found


def take(folder: StudyFolder, epoch: int, who: Mapping[str, Any]) -> bool:
    """Takes the next epoch and shuts out the earlier ones; False where somebody else was faster."""
    if not folder.create(f"{CLAIMS}/{epoch:08d}.json", json.dumps(dict(who)).encode()):
        return False
    for earlier, marks in epochs(folder).items():
        if earlier < epoch and not marks & {"fenced", "closed"}:
            _fence(folder, earlier)
            folder.create(f"{CLAIMS}/{earlier:08d}.fenced", b"")
    return True


def close(folder: StudyFolder, epoch: int) -> None:
    """Says of one's own epoch that all its files are written."""
    folder.create(f"{CLAIMS}/{epoch:08d}.closed", b"")


def end(folder: StudyFolder, epoch: int) -> None:
    """Says of one's own epoch that its driver is done."""
    close(folder, epoch)
    folder.create(f"{CLAIMS}/{epoch:08d}.ended", b"")


def kept(folder: StudyFolder, names: Iterable[str]) -> frozenset[str]:
    """Of a table's files those that must not be deleted, whatever holds their rows by now."""
    closed = {epoch for epoch, marks in epochs(folder).items() if "closed" in marks}
    last: dict[str, str] = {}
    for name in sorted(names):
        if (found := _NUMBERED.fullmatch(name)) and int(found[1]) not in closed:
            last[found[1]] = name
    return frozenset(last.values())


class EpochWriter:
    """Adds files to the tables of a study, as long as nobody has taken a later epoch."""

    def __init__(self, folder: StudyFolder, epoch: int) -> None:
        self.folder, self.epoch = folder, epoch
        self._next = dict.fromkeys(TABLES, 0)
        self._is_there = True  # as was last seen

    def append(self, table: str, rows: Sequence[dict[str, Any]]) -> None:
        """Adds rows as one new file; raises `Superseded` where that is no longer ours to do."""
        if not rows:
            return
        self._require_folder()
        content = self.folder.encoded(table, rows, epoch=self.epoch)
        while not self.folder.create(self._name(table), content):
            self.check()  # or else it is our own file, of which we were not told that it was written
            self._next[table] += 1
        self._next[table] += 1

    def check(self) -> None:
        """Raises `Superseded` where another driver has taken a later epoch.

        A study that is gone may come back, as a disk that was unmounted does: nothing is put in its place.
        """
        now = newest(self.folder)
        self._is_there = now >= self.epoch
        self._require_folder()
        if now > self.epoch:
            raise superseded(self.folder, now)

    def _require_folder(self) -> None:
        if not self._is_there:
            raise StoreError(f"{self.folder.uri}: is gone, and was there when the study began; bring it back")

    def _name(self, table: str) -> str:
        return f"{table}/{self.epoch:08d}-{self._next[table]:08d}.parquet"


def superseded(folder: StudyFolder, epoch: int) -> Superseded:
    """What a driver has to say that is no longer the one."""
    who = holder(folder, epoch)
    return Superseded(
        f"{folder.name}: process {who.get('pid')} on {who.get('host')} has taken over while this one was not "
        "heard of; this one has stopped, and writes nothing more"
    )


def _fence(folder: StudyFolder, epoch: int) -> None:
    for table, kind in TABLES.items():
        found = filter(None, map(_NUMBERED.fullmatch, folder.list(table)))
        number = max((int(each[2]) + 1 for each in found if int(each[1]) == epoch), default=0)
        empty = kind.encode(build(kind, []))
        while not folder.create(f"{table}/{epoch:08d}-{number:08d}.parquet", empty):
            number += 1  # it was awake, and wrote another
