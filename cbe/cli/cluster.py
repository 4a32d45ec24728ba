"""`cbe cluster`: clusters on a cloud, on Kubernetes, or on this machine, from files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cbe.words import plural

if TYPE_CHECKING:
    from cbe.cluster.cost import Bill, GroupCost

app = typer.Typer(
    help="Check, price, bring up and take down the clusters that files describe.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

File = Annotated[Path, typer.Argument(help="A file for `ray up`, or a manifest, or a folder of manifests")]
Json = Annotated[bool, typer.Option("--json", help="For a program")]


@app.command()
def check(
    files: Annotated[list[Path], typer.Argument(help="Files for `ray up`, manifests, or folders of them")],
    crds: Annotated[
        Path | None, typer.Option(help="A folder with KubeRay's CRDs, to hold manifests against")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check cluster files against Ray's own schema and our rules, without any cloud."""
    from cbe.cluster.check import check as checked

    found = [each.to_plain() for each in checked(files, crds)]
    if as_json:
        print(json.dumps(found, indent=2))
        return
    for each in found:
        counted = f"{plural(len(each['groups']), 'group')} of workers, {len(each['spot'])} of them spot"
        print(f"{each['file']}: {each['kind']}: {counted}")


@app.command()
def cost(
    file: File,
    hours: Annotated[float, typer.Option(min=0, max=1e6, help="Of which to tell the price, too")] = 1,
    as_json: Json = False,
) -> None:
    """Say what a cluster costs: idle, each group, and at its full size."""
    from cbe.cluster.cost import cost as costs

    bill = costs(file)
    if as_json:
        print(json.dumps(bill.to_plain(hours), indent=2))
    else:
        _print(bill, hours)


@app.command()
def up(file: File) -> None:
    """Create a cluster, or bring it up to date; one that does not pass `check` is refused."""
    from cbe.cluster.launch import up as launched

    launched(file)


@app.command()
def down(file: File) -> None:
    """Delete a cluster; its store stays."""
    from cbe.cluster.launch import down as deleted

    deleted(file)


@app.command()
def status(file: File) -> None:
    """Say what a cluster has, and what is asked of it."""
    from cbe.cluster.launch import status as told

    told(file)


def _print(bill: Bill, hours: float) -> None:
    from rich.text import Text

    from cbe.cli.console import out
    from cbe.cli.studies import plain_table
    from cbe.cli.talk import say

    if not bill.head and not bill.workers:
        say(f"{bill.file}: no machines but the one at hand; costs nothing more")
        return
    table = plain_table(("group", "machine", "price"), ("nodes", "USD/h a node"))
    for each in (bill.head, *bill.workers) if bill.head else bill.workers:
        table.add_row(*_row(each))
    out.print(table)
    figures = {
        "idle": bill.idle_usd_h,
        "full size, all spot": bill.full_spot_usd_h,
        "full size, at most": bill.full_usd_h,
    }
    width = max(map(len, figures))
    for name, usd_h in figures.items():
        more = f"   {usd_h * hours:,.2f} USD in {hours:g} h" if hours != 1 else ""
        out.print(Text(f"{name:{width}}  {usd_h:,.2f} USD/h{more}"))
    where = f" in {bill.region}" if bill.region else ""
    if bill.elsewhere:
        where += f" (not {bill.file_region}, where the cluster would be)"
    say(
        f"List prices{where} as of {bill.as_of}, with disks and addresses, without traffic and the bucket: "
        "check them with your cloud."
    )


def _row(each: GroupCost) -> tuple[str, ...]:
    group = each.group
    nodes = "1" if group.head else f"{group.min} to {group.max}"
    price = "spot" if group.spot else "on demand"
    return group.name, group.instance or "–", price, nodes, f"{each.node_usd_h:,.4f}"
