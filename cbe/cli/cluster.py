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
    help="Check, price, start and delete clusters that are described by files.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

File = Annotated[
    Path, typer.Argument(help="A file for `ray up`, a Kubernetes manifest, or a folder of manifests.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def check(
    files: Annotated[
        list[Path], typer.Argument(help="Files for `ray up`, Kubernetes manifests, or folders of them.")
    ],
    crds: Annotated[
        Path | None, typer.Option(help="A folder with KubeRay's CRDs to check manifests against.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check cluster files against Ray's schema and our rules, without access to a cloud."""
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
    hours: Annotated[
        float, typer.Option(min=0, max=1e6, help="Also show the price for this many hours.")
    ] = 1,
    as_json: Json = False,
) -> None:
    """Show the price of a cluster: idle, by group, and at full size."""
    from cbe.cluster.cost import cost as costs

    bill = costs(file)
    if as_json:
        print(json.dumps(bill.to_plain(hours), indent=2))
    else:
        _print(bill, hours)


@app.command()
def up(file: File) -> None:
    """Create or update a cluster. The file must pass `check`."""
    from cbe.cluster.launch import up as launched

    launched(file)


@app.command()
def down(file: File) -> None:
    """Delete a cluster. Its store is kept."""
    from cbe.cluster.launch import down as deleted

    deleted(file)


@app.command()
def status(file: File) -> None:
    """Show the machines of a cluster and its pending requests."""
    from cbe.cluster.launch import status as print_status

    print_status(file)


def _print(bill: Bill, hours: float) -> None:
    from rich.text import Text

    from cbe.cli.console import out, say
    from cbe.cli.study_view import plain_table

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
