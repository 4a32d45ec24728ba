"""`cbe cost`: what a network costs, and what each ensemble adds to it."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from cbe.spec import TrainConfig, read_config
from cbe.spec.registry import ENSEMBLES
from cbe.spec.train import WITH_HEADS


def command(
    model: Annotated[str, typer.Option(help="wrn-DEPTH-WIDTH")] = "wrn-28-2",
    ensemble: Annotated[
        str | None, typer.Option(help=f"One of {', '.join(ENSEMBLES)}; all when left out")
    ] = None,
    heads: Annotated[int | None, typer.Option(help="M")] = None,
    private_channels: Annotated[int | None, typer.Option(help="C_G of the channel ensemble")] = None,
    classes: Annotated[int, typer.Option(min=2)] = 10,
    channels: Annotated[int, typer.Option(help="1 for grey, 3 for RGB images", min=1, max=3)] = 3,
    size: Annotated[int, typer.Option(help="Side of the images", min=8, max=128)] = 32,
    as_json: Annotated[bool, typer.Option("--json", help="An object for a program")] = False,
) -> None:
    """Parameters and multiply-accumulates of a network, and of each ensemble against it."""
    from cbe.nn.cost import Cost, cost

    def of(kind: str) -> Cost:
        settings = [f"ensemble.kind={kind}", f"model.name={model}"]
        if heads is not None and (kind in WITH_HEADS or kind == ensemble):
            settings.append(f"ensemble.heads={heads}")
        if private_channels is not None and (kind == "channel" or kind == ensemble):
            settings.append(f"ensemble.private_channels={private_channels}")
        config = read_config(TrainConfig, settings=settings)
        return cost(config, classes=classes, channels=channels, size=size)

    if as_json:
        print(
            json.dumps(
                of(ensemble).to_plain() if ensemble else [of(k).to_plain() for k in ENSEMBLES], indent=2
            )
        )
        return

    from rich.table import Table

    from cbe.cli.console import out

    base, shown = of("single"), [of(kind) for kind in ([ensemble] if ensemble else ENSEMBLES)]
    table = Table(title=f"{model}, {classes} classes, {channels}×{size}×{size}", title_justify="left")
    table.add_column("ensemble")
    for name in ("heads", "private", "parameters", "added", "MACs (M)", "added"):
        table.add_column(name, justify="right")
    for each in shown if base in shown else [base, *shown]:
        table.add_row(
            each.ensemble,
            str(each.heads),
            str(each.private_channels or "–"),
            f"{each.parameters:,}",
            _added(each.parameters, base.parameters),
            f"{each.macs / 1e6:,.2f}",
            _added(each.macs, base.macs),
        )
    out.print(table)


def _added(value: int, base: int) -> str:
    return "–" if value == base else f"{100 * (value - base) / base:+.2f} %"
