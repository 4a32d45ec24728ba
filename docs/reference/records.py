"""Tables of the benchmarks whose results are recorded in `studies/records`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from docs.reference.markdown import table

RECORDS = Path(__file__).parent.parent.parent / "studies" / "records"


def forward() -> str:
    """`joint` against `split`, at equal wall time."""
    record = _read("forward")
    ratio, errors = record["joint over split, step time"], record["test_error"]
    rows = [
        [f"`{name}`", f"{record['steps'][name]:,}", *map(_percent, (*errors[name], record["mean"][name]))]
        for name in ("split", "joint")
    ]
    heads = ["forward", "steps", *(f"seed {n}, %" for n in range(record["seeds"])), "mean, %"]
    difference, error = _percent(record["joint minus split, mean"]), _percent(record["standard error"])
    return (
        f"{table(heads, rows)}\n\nTest error at equal wall time. Paired difference: {difference} points, "
        f"standard error {error}, n = {record['seeds']}. A step of `joint` takes {ratio['ratio']:.2f} times "
        f"as long ({ratio['min']:.2f} to {ratio['max']:.2f}, n = {ratio['n']}). {_machine(record)}"
    )


def simulator() -> str:
    """Forecasts of `cbe plan --gpus` against real runs."""
    record = _read("simulator")
    real = {name: each["wall_s"] for name, each in record["real"].items()}
    rows = [
        [name, f"{each['wall_s']:.0f} s", f"{real[name[:9]]:.0f} s", f"{each['over real']:.2f}"]
        for name, each in record["foretold"].items()
    ]
    trials = record["study"]["budget"]["trials"]
    return (
        f"{table(['forecast', 'forecast time', 'real time', 'ratio'], rows)}\n\n"
        f"{trials} trials with ASHA and 6 confirmations; {record['replays']} replays a forecast; n = 1 real "
        f"run for each row. {_machine(record)}"
    )


def search() -> str:
    """Search strategies on recorded landscapes."""
    record, found = _read("search"), []
    for name, each in record["landscapes"].items():
        targets = [f"{100 * target:.2f} %" for target in each["targets"]]
        rows = [
            [contender, *map(_steps, row["steps"]), _end(row["end"]), f"{row['spent']:,.0f}"]
            for contender, row in each["contenders"].items()
        ]
        verdicts = each["verdicts"]
        large, said = verdicts["of 2 points or more"], verdicts["said"]
        words = ", ".join(f"{count} {word}" for word, count in sorted(said.items()))
        decided = "none" if large["decided"] is None else f"{100 * large['decided']:.0f} %"
        found.append(
            f"**{name}**, {each['configs']} configs on {each['pairs']} pairs; the base has "
            f"{_percent(each['base'])} %, the paper's config {_percent(each['paper'])} %.\n\n"
            f"{table(['contender', *targets, 'true error at the end, %', 'steps in all'], rows)}\n\n"
            f"Verdicts at the default budget (n = {verdicts['n']}): {words}; wrong: "
            f"{100 * verdicts['wrong']:.1f} %. Decided of {large['n']} true differences of 2 points or more: "
            f"{decided}. Points that are not on record are answered by the nearest that is: rank correlation "
            f"{each['rule']['rank correlation']:.2f} on configs left out."
        )
    found.append(
        f"Medians and quartiles of {record['replicates']} replicates, and how many reach the target. A "
        f"suggestion after 200 trials takes the driver {record['suggestion_ms']:.0f} ms. {_machine(record)}"
    )
    return "\n\n".join(found)


def _steps(found: Any) -> str:
    middle, low, high = (
        "–" if each is None else f"{each:,.0f}" for each in (found["median"], *found["quartiles"])
    )
    return f"{middle} ({low} to {high}), {100 * found['reached']:.0f} %"


def _end(found: Any) -> str:
    low, high = found["quartiles"]
    return f"{100 * found['median']:.2f} ({100 * low:.2f} to {100 * high:.2f})"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _read(name: str) -> Any:
    return json.loads((RECORDS / f"{name}.json").read_text())


def _machine(record: Any) -> str:
    where = record["machine"]
    cpu = where["cpu"].replace("(R)", "")
    gpu = where["gpu"] or "no GPU"
    return f"Machine: {cpu}, {where['cores']} cores, {gpu}, torch {where['torch']}, Python {where['python']}."
