"""The data-parallel workers of one run, seen from one of them.

Losses that are means over samples need nothing of this: averaging gradients averages them too. What is not a
mean (thresholds, correlations over a batch) is computed from everybody's samples.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class World:
    """One worker by default; a process group makes it several."""

    group: dist.ProcessGroup | None = None

    @property
    def size(self) -> int:
        return 1 if self.group is None else self.group.size()

    @property
    def rank(self) -> int:
        return 0 if self.group is None else self.group.rank()

    def gather(self, mine: Tensor) -> Tensor:
        """Everybody's rows, in the order of ranks.

        Gradients reach this worker's rows only, times the number of workers, so that averaging the workers'
        gradients gives the gradient of the loss over all rows.
        """
        if self.size == 1:
            return mine
        rows = [torch.empty_like(mine, memory_format=torch.contiguous_format) for _ in range(self.size)]
        dist.all_gather(rows, mine.detach().contiguous(), group=self.group)
        if mine.requires_grad:
            rows[self.rank] = mine * self.size - (mine * (self.size - 1)).detach()
        return torch.cat(rows)
