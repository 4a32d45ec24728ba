"""The machines of a cluster that grows from nothing, as far as time and money see them."""

from __future__ import annotations

from dataclasses import dataclass

from cbe.errors import InputError
from cbe.spec import StudyConfig
from cbe.study.budget.plan import whole

NODE_START_S = 180.0  # from the wish for a machine to its first trial
IDLE_S = 300.0  # before a machine without a trial leaves


@dataclass(frozen=True)
class Cluster:
    """As many GPUs as there may be at once."""

    gpus: int
    node_start_s: float = NODE_START_S
    idle_s: float = IDLE_S


@dataclass(frozen=True)
class Place:
    """What a trial occupies, and how many fit on a machine: one GPU, or as many as a trial wants."""

    gpus: float  # a trial's
    on_one: int

    @classmethod
    def of(cls, study: StudyConfig) -> Place:
        wanted = study.resources
        gpus = wanted.workers * (1.0 if wanted.gpus is None else wanted.gpus)
        if not gpus:
            raise InputError(
                "resources.gpus: is 0, so that GPUs change nothing; wanted what a trial is to have of one, "
                "as --set resources.gpus=1"
            )
        return cls(gpus, whole(1, gpus) if gpus < 1 else 1)

    @property
    def machine_gpus(self) -> float:
        return max(1.0, self.gpus)

    def at_once(self, study: StudyConfig, cluster: Cluster) -> int:
        """How many trials may run at once."""
        fits = whole(cluster.gpus, self.machine_gpus) * self.on_one
        if not fits:
            raise InputError(f"--gpus {cluster.gpus}: a trial of this study wants {self.gpus:g}; give more")
        return min(fits, study.resources.concurrent or fits)


@dataclass(eq=False)
class Machine:
    asked_s: float
    ready_s: float
    busy: int = 0  # trials on it
    idle_since_s: float = 0.0


class SimulatedMachines:
    """Come when a trial finds no room, and leave when they have been idle for long enough."""

    def __init__(self, cluster: Cluster, on_one: int) -> None:
        self._cluster, self._on_one = cluster, on_one
        self._open: list[Machine] = []  # with room for a trial; the last was used last
        self.paid_s = 0.0

    def take(self, now: float) -> Machine:
        """A machine with room, the one used last before others; or else a new one."""
        while self._open and not self._open[-1].busy and now > self._leaves_s(self._open[-1]):
            self._release(self._open.pop())
        if not self._open:
            self._open.append(Machine(now, now + self._cluster.node_start_s))
        machine = self._open[-1]
        machine.busy += 1
        if machine.busy == self._on_one:
            self._open.pop()
        return machine

    def give_back(self, machine: Machine, now: float) -> None:
        if machine.busy == self._on_one:
            self._open.append(machine)
        machine.busy -= 1
        machine.idle_since_s = now

    def end(self) -> None:
        while self._open:
            self._release(self._open.pop())

    def _leaves_s(self, machine: Machine) -> float:
        return machine.idle_since_s + self._cluster.idle_s

    def _release(self, machine: Machine) -> None:
        self.paid_s += self._leaves_s(machine) - machine.asked_s
