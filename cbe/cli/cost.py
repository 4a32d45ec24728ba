"""`cbe cost`: what a network costs, and what each ensemble adds to it."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from cbe.spec import TrainConfig, read_config
from cbe.spec.backbones import BACKBONES
from cbe.spec.ensembles import ENSEMBLES


def command(
    model: Annotated[str, typer.Option(help=f"The network: {', '.join(BACKBONES)}.")] = "wrn-28-2",
    ensemble: Annotated[
        str | None, typer.Option(help=f"One of {', '.join(ENSEMBLES)}. Default: all.")
    ] = None,
    heads: Annotated[int | None, typer.Option(help="Number of heads (M).")] = None,
    private_channels: Annotated[
        int | None, typer.Option(help="Private channels of each head (C_G), channel ensemble only.")
    ] = None,
    classes: Annotated[int, typer.Option(help="Number of classes.", min=2)] = 10,
    channels: Annotated[int, typer.Option(help="1 for grey images, 3 for RGB.", min=1, max=3)] = 3,
    size: Annotated[int, typer.Option(help="Image width and height in pixels.", min=8, max=128)] = 32,
    batch_size: Annotated[int | None, typer.Option(help="Labeled images per step.", min=1)] = None,
    unlabeled_ratio: Annotated[
        int | None, typer.Option(help="Unlabeled images per labeled image.", min=1)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare ensembles by parameters, operations and GPU memory."""
    from cbe.nn.cost import Cost, cost
    from cbe.ssl import resolve

    def of(kind: str) -> Cost:
        settings = [f"ensemble.kind={kind}", f"model.name={model}"]
        for key, value in (("ensemble.heads", heads), ("ensemble.private_channels", private_channels)):
            if value is not None and (key in ENSEMBLES[kind].takes or kind == ensemble):
                settings.append(f"{key}={value}")
        batch = {"batch_size": batch_size, "unlabeled_ratio": unlabeled_ratio}
        settings.extend(f"training.{key}={value}" for key, value in batch.items() if value is not None)
        config = resolve(read_config(TrainConfig, settings=settings))
        return cost(config, classes=classes, channels=channels, size=size, with_memory=True)

    if as_json:
        print(
            json.dumps(
                of(ensemble).to_plain() if ensemble else [of(k).to_plain() for k in ENSEMBLES], indent=2
            )
        )
        return

    from cbe.cli.console import out
    from cbe.cli.study_view import plain_table

    base, shown = of("single"), [of(kind) for kind in ([ensemble] if ensemble else ENSEMBLES)]
    out.print(f"{model}, {classes} classes, {channels}×{size}×{size}", style="bold", highlight=False)
    figures = ("heads", "private", "parameters", "added", "MACs (M)", "added", "card, GB*")
    table = plain_table(("ensemble",), figures)
    for each in shown if base in shown else [base, *shown]:
        table.add_row(
            each.ensemble,
            str(each.heads),
            str(each.private_channels or "–"),
            f"{each.parameters:,}",
            _added(each.parameters, base.parameters),
            f"{each.macs / 1e6:,.2f}",
            _added(each.macs, base.macs),
            f"{(each.card_bytes or 0) / 2**30:.1f}",
        )
    out.print(table)
    out.print("* that a step of training holds at most, by an estimate", style="dim", highlight=False)


def _added(value: int, base: int) -> str:
    return "–" if value == base else f"{100 * (value - base) / base:+.2f} %"
