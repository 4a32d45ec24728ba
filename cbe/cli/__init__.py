"""The `cbe` command. Each command is one library call; what it prints on stdout is data, on stderr talk."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from cbe import __version__
from cbe.cli import (
    best,
    check,
    cluster,
    cost,
    diff,
    export,
    init,
    models,
    plan,
    query,
    report,
    run,
    serve,
    studies,
    submit,
    table,
    token,
    train,
)
from cbe.errors import CbeError

app = typer.Typer(
    help="Run hyperparameter studies of semi-supervised image classification with channel-based ensembles.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("init")(init.command)
app.command("train")(train.command)
app.command("check")(check.command)
app.command("plan")(plan.command)
app.command("run")(run.run)
app.command("resume")(run.resume)
app.command("submit")(submit.submit)
app.command("best")(best.command)
app.command("report")(report.command)
app.command("query")(query.command)
app.command("ls")(studies.ls)
app.command("show")(studies.show)
app.command("stop")(studies.stop)
app.command("delete")(studies.delete)
app.command("logs")(submit.logs)
app.command("cost")(cost.command)
app.command("table")(table.command)
app.command("export")(export.command)
app.command("diff")(diff.command)
app.command("export-model")(models.export)
app.command("predict")(models.predict)
app.command("serve")(serve.command)
app.add_typer(token.app, name="token")
app.add_typer(cluster.app, name="cluster")


def _version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Runs a command; an error raised on purpose becomes its message and exit code, without a traceback."""
    try:
        app()
    except CbeError as error:
        print(f"cbe: {error}" if "\n" not in str(error) else f"cbe:\n{error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("cbe: interrupted; what was done is kept", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
