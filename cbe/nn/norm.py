"""BatchNorm over all data-parallel workers, also where torch has none: its SyncBatchNorm wants a GPU."""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn


def synchronise(network: nn.Module, world_group: dist.ProcessGroup, device: torch.device) -> None:
    """Makes every BatchNorm of a network normalise over the batches of all workers, as one worker would.

    Parameters and buffers stay the same tensors under the same names. Workers must have equally many samples.
    """
    if device.type == "cuda":
        nn.SyncBatchNorm.convert_sync_batchnorm(network, world_group)
        return
    for parent in list(network.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.BatchNorm2d):
                setattr(parent, name, WorldBatchNorm2d(child, world_group))


class WorldBatchNorm2d(nn.BatchNorm2d):
    """Takes the place of a BatchNorm2d and its tensors; its state is interchangeable with that one's."""

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(self, replaced: nn.BatchNorm2d, group: dist.ProcessGroup) -> None:
        super().__init__(replaced.num_features, replaced.eps, replaced.momentum, device="meta")
        self.weight, self.bias = replaced.weight, replaced.bias
        for name, buffer in replaced.named_buffers():
            setattr(self, name, buffer)
        self.train(replaced.training)
        self.group = group

    @torch.compiler.disable  # type: ignore[untyped-decorator]  # the exchange cannot be traced
    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return super().forward(x)
        mean, variance = _moments(x.detach(), self.group)
        count = x.numel() // x.shape[1] * self.group.size()
        with torch.no_grad():
            momentum = cast(float, self.momentum)
            self.num_batches_tracked.add_(1)
            self.running_mean.lerp_(mean, momentum)
            self.running_var.lerp_(variance * (count / (count - 1)), momentum)  # unbiased, as torch's
        normalised: Tensor = _Normalise.apply(  # type: ignore[no-untyped-call]
            x, self.weight, self.bias, mean, variance, self.eps, count, self.group
        )
        return normalised


def _moments(x: Tensor, group: dist.ProcessGroup) -> tuple[Tensor, Tensor]:
    """Mean and biased variance [C] of everybody's samples, in float32 and equal to the bit on all workers."""
    # BatchNorm's own pass: twenty times faster on channels_last than var_mean.
    mine = torch.stack(torch.ops.aten.batch_norm_update_stats(x.float(), None, None, 0.0))
    workers = [torch.empty_like(mine) for _ in range(group.size())]
    dist.all_gather(workers, mine, group=group)
    means, variances = torch.stack(workers).unbind(dim=1)
    # Not E[x²] − E[x]², which loses the digits of a small variance around a large mean.
    return means.mean(dim=0), variances.mean(dim=0) + means.var(dim=0, correction=0)


class _Normalise(torch.autograd.Function):
    """(x − mean)/√(variance + ε)·weight + bias, where the two moments are functions of everybody's x."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        mean: Tensor,
        variance: Tensor,
        epsilon: float,
        count: int,
        group: dist.ProcessGroup,
    ) -> Tensor:
        ctx.save_for_backward(x, weight, mean, variance)
        ctx.epsilon, ctx.count, ctx.group = epsilon, count, group
        return F.batch_norm(x, mean, variance, weight, bias, False, 0.0, epsilon)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, variance = ctx.saved_tensors
        # Of constant moments first; then what flows through the moments, from everybody's samples.
        grad_x, grad_weight, grad_bias = torch.ops.aten.native_batch_norm_backward(
            *(grads[0], x, weight, mean, variance, None, None, False, ctx.epsilon, [True, True, True])
        )
        sums = torch.stack([grad_weight, grad_bias])
        dist.all_reduce(sums, group=ctx.group)
        through_variance, through_mean = sums / ctx.count
        deviation = torch.rsqrt(variance + ctx.epsilon)
        slope = weight * deviation.square() * through_variance
        offset = weight * deviation * through_mean - slope * mean
        grad_x.addcmul_(x, slope[:, None, None], value=-1).sub_(offset[:, None, None])
        return grad_x, grad_weight, grad_bias, None, None, None, None, None
