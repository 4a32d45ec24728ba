"""Wide residual networks for small images (Zagoruyko & Komodakis 2016), without their classifier."""

from __future__ import annotations

from torch import Tensor, nn

from cbe.nn.layers import Norm, batch_norm, initialise
from cbe.spec import Network


class Block(nn.Module):
    """Two 3×3 convolutions, each behind BatchNorm and LeakyReLU, around a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int, leak: float, norm: Norm, first: bool) -> None:
        super().__init__()
        self.norm1 = norm(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm2 = norm(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.activate = nn.LeakyReLU(leak, inplace=True)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if inputs != outputs else None
        # The very first block activates before the split, so that its shortcut is normalised too.
        self.activate_shortcut = first and self.shortcut is not None

    def forward(self, x: Tensor) -> Tensor:
        y = self.activate(self.norm1(x))
        if self.activate_shortcut:
            x = y
        y = self.conv2(self.activate(self.norm2(self.conv1(y))))
        summed: Tensor = y + (self.shortcut(x) if self.shortcut is not None else x)
        return summed


class WideResNet(nn.Sequential):
    """The blocks: images [B, C, H, W] to features [B, C_F, H/4, W/4], not yet normalised nor activated."""

    def __init__(self, config: Network, channels: int, depth: int, width: int) -> None:
        blocks = (depth - 4) // 6
        widths = [16, 16 * width, 32 * width, 64 * width]
        layers: list[nn.Module] = [nn.Conv2d(channels, widths[0], 3, padding=1, bias=False)]
        for group in range(3):
            for block in range(blocks):
                inputs = widths[group] if block == 0 else widths[group + 1]
                stride = 2 if group > 0 and block == 0 else 1
                first = group == 0 and block == 0
                layers.append(
                    Block(inputs, widths[group + 1], stride, config.leak, batch_norm(config), first=first)
                )
        super().__init__(*layers)
        initialise(self, config.leak)
