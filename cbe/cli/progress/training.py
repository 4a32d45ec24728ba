"""What a person sees while a model trains: a live bar on a terminal, a line per evaluation elsewhere."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from cbe.cli.console import err, out
from cbe.data import Dataset, facts_of
from cbe.spec import TrainConfig
from cbe.words import clean


class Screen:
    """Progress of one run, on stderr."""

    def __init__(self, config: TrainConfig, folder: Path) -> None:
        self._folder, self._config = folder, config
        self._title = f"{config.method.name} · {_ensemble(config)} · {config.model.name}"
        self._steps = config.training.steps
        self._saved_at = 0
        self._losses, self._quality = Text(), Text()
        self._bar = Progress(
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TextColumn("ETA"),
            TimeRemainingColumn(),
            console=err,
        )
        self._task = self._bar.add_task("", total=self._steps, rate="")
        lines = Group(Text(self._title), self._bar, self._losses, self._quality)
        self._live = Live(lines, console=err, refresh_per_second=4)

    def __enter__(self) -> Self:
        if err.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if err.is_terminal:
            self._live.stop()
        if kind is KeyboardInterrupt and (self._folder / "config.yaml").exists():
            kept = f" Steps up to {self._saved_at} are kept." if self._saved_at else ""
            self.say(f"Stopped.{kept} Go on with: cbe train --resume --out {self._folder}")

    def say(self, text: str) -> None:
        err.print(clean(text), highlight=False, markup=False, soft_wrap=True)

    def describe(self, data: Dataset) -> None:
        if not err.is_terminal:  # there it stands above the bar
            self.say(self._title)
        for line in facts_of(data, self._config).lines():
            self.say(line)

    def saved(self, step: int) -> None:
        self._saved_at = step

    def progress(self, step: int, metrics: dict[str, Any]) -> None:
        """Takes in what the loop tells every few steps; evaluations have a validation error."""
        rate = f"{metrics['steps_per_s']:.1f} step/s"
        self._bar.update(self._task, completed=step, rate=rate)
        self._losses.plain = f"loss {metrics['loss']:.3f}:   " + "   ".join(
            f"{name.removeprefix('loss_')} {value:.3f}"
            for name, value in metrics.items()
            if name.startswith("loss_") and value
        )
        pseudo = (
            f"pseudo-labels {_percent(metrics['pseudo_accuracy'])} right, "
            f"{_percent(metrics['sampling_rate'])} sampled"
        )
        if "validation_error" in metrics:
            self._validation = f"validation error {_percent(metrics['validation_error'])} at step {step}"
            if not err.is_terminal:
                loss = f"loss {metrics['loss']:.3f}"
                self.say(f"step {step}/{self._steps}  {rate}  {loss}  {pseudo}  {self._validation}")
        self._quality.plain = f"{pseudo}   {self._validation}"

    _validation = ""


def print_summary(summary: dict[str, Any]) -> None:
    """The final table, on stdout."""
    table = Table(title=summary["folder"], title_justify="left")
    for name in ("", "step", "validation error", "test error*"):
        table.add_column(name, justify="right" if name else "left")
    for key, label in (("last", "last"), ("median", "median of last 20"), ("best", "best on validation")):
        row = summary[key]
        step = "" if key == "median" else f"{row['step']:,}"
        table.add_row(label, step, _percent(row["validation_error"]), _percent(row["test_error"]))
    out.print(table)
    if summary["at_chance"]:
        out.print(f"The last validation error is {summary['at_chance']}.", highlight=False)
    out.print("* not used for selection: no step, threshold or setting was chosen by it", highlight=False)


def _ensemble(config: TrainConfig) -> str:
    kind = config.ensemble.kind
    return f"{kind} of {config.heads} heads" if config.heads > 1 else kind


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.2f} %"
