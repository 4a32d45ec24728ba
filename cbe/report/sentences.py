"""The answer of a study in words: one headline and one text, which every door shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cbe.report.wording import (
    against,
    amount,
    called,
    capitalized,
    figure,
    leads,
    margin_of,
    said_by,
    value,
)
from cbe.spec.metrics import on_test
from cbe.store.states import OPEN
from cbe.verdicts import Said
from cbe.words import counts, plural

if TYPE_CHECKING:
    from cbe.report.best import About, Ranked

_MOST_NAMES = 3


def headline(first: Ranked, about: About) -> str:
    """The verdict in a few words: on which config, against what, and its figure."""
    said = _verdict(first, about)
    return f"So far: {said}" if about.progress.running else capitalized(said)


def text(ranked: Sequence[Ranked], about: About) -> str:
    """The answer with its figures.

    On the config that ranks first; on the best of the search where that is the base; on the paper's config;
    why nothing of the search was confirmed; what is still to come.
    """
    first, *others = ranked
    named = [first]
    if first.preset == "base" and about.role == "confirm":
        named += [each for each in others if not each.preset][:1]
    named += [each for each in others if each.preset == "paper"]
    said = [first.sentence, *(f"{capitalized(description(each, about))}." for each in named[1:])]
    if _lost_paper(about):
        said.append("The paper's config is not compared: none of its runs was trained to the end.")
    if reason := _unconfirmed(about):
        said.append(f"No config of the search was confirmed: {reason}.")
    if to_come := about.progress.to_come(about.rows):
        said.append(f"To come: {to_come}.")
    return " ".join(said)


def sentence(ranked: Ranked, about: About) -> str:
    """What one config's runs say."""
    said = description(ranked, about)
    if on_test(about.objective.metric):
        said += "; selected on test labels"
    if about.role == "search":
        said += "; not yet confirmed" if about.study.confirm.runs else "; not confirmed"
    return f"{capitalized(said)}."


def description(ranked: Ranked, about: About) -> str:
    """A config's figure, how it stands against the base, and what else a reader must know of its runs."""
    metric = about.objective.metric
    said = f"{called(ranked.name)} has {figure(metric, ranked.mean, ranked.interval, ranked.n)}"
    if ranked.preset != "base":
        said += _against_the_base(ranked, about)
    if ranked.failed:
        said += f"; {ranked.failed} more of its runs failed"
    if about.study.scheduler.name == "pbt" and not ranked.preset:
        said += "; its values changed during training, and these are the last"
    if chance := about.chance(ranked):
        said += f"; {chance}"
    return said


def note(about: About) -> str:
    """What the differences are, how far their intervals hold, and what the words of the verdict mean."""
    said = "Differences are paired: over runs on the same seed and label split, with a 95 % interval."
    if about.role == "search":
        if len(about.study.pairs) > 1:
            said += " Configs that ran on fewer pairs rank after those that ran on more."
        return (
            f"{said} No verdict is given without a confirmation: the search chose the best of many configs, "
            "which makes its difference look too large."
        )
    several = plural(about.study.comparisons, "comparison")
    said += (
        " Those to the base may be looked at after every pair: they hold at all looks together, and for "
        f"{several}. Better or worse: the interval excludes 0."
    )
    if about.study.margin is not None:
        said += f" Equivalent: all of it lies within {margin_of(about.study)} of 0."
    said += " Undecided: the pairs so far show none of these."
    return f"{said} The search's own figure looks too good, because it was used to choose the config."


def _lost_paper(about: About) -> bool:
    """Whether the paper's config has ended without any run that counts."""
    states = {row["state"] for row in about.rows if row["preset"] == "paper" and row["role"] == about.role}
    return bool(states) and not about.fixed.get("paper") and states.isdisjoint(OPEN)


def _unconfirmed(about: About) -> str | None:
    """Why no config of the search was confirmed; None where one was, or may still be."""
    if not about.study.confirm_pairs or not about.study.search or about.confirmed:
        return None
    if about.none_ahead:
        return "none is ahead of the base on the runs they share"
    if about.progress.halted:
        return "the study stopped before" + (f" ({about.progress.reason})" if about.progress.reason else "")
    if about.progress.state != "finished":
        return None
    sampled = [row for row in about.rows if not row["preset"] and row["state"] != "infeasible"]
    if any(row["role"] == "confirm" for row in sampled):
        return "none of its runs was trained to the end"
    if not sampled:
        return "the search sampled none"
    by_state = counts(Counter(row["state"] for row in sampled))
    return f"all {plural(len(sampled), 'trial')} that the search sampled ended early ({by_state})"


def _verdict(first: Ranked, about: About) -> str:
    mean, name = value(about.objective.metric, first.mean), called(first.name)
    if about.role == "search":
        said = leads(name, "search", mean)
        if about.progress.running:
            return said
        return f"{said}, not {'yet ' if about.study.confirm.runs else ''}confirmed"
    if first.preset == "base":
        return _base_first(mean, about)
    if first.verdict in ("better", "worse"):
        return f"{name} is {first.verdict} than the base: {mean}"
    if first.verdict == "equivalent":
        return f"{name} is equivalent to the base within {margin_of(about.study)}: {mean}"
    judged = "not compared with" if first.verdict is None else "undecided against"
    return f"{name} ranks first with {mean}, {judged} the base"


def _base_first(mean: str, about: About) -> str:
    """The base against all that was confirmed beside it."""
    by_verdict: dict[Said, list[str]] = {}
    for config_id, verdict in about.verdicts.items():
        by_verdict.setdefault(verdict.said, []).append(called(about.names[config_id]))
    if list(by_verdict) == ["worse"]:
        return f"the base is better than {_listed(by_verdict['worse'])}: {mean}"
    parts = []
    if worse := by_verdict.get("worse"):
        parts.append(f"better than {_listed(worse)}")
    if equivalent := by_verdict.get("equivalent"):
        parts.append(f"equivalent to {_listed(equivalent)} within {margin_of(about.study)}")
    if undecided := by_verdict.get("undecided"):
        parts.append(f"undecided against {_listed(undecided)}")
    return f"the base ranks first with {mean}" + (f": {', '.join(parts)}" if parts else "")


def _against_the_base(ranked: Ranked, about: About) -> str:
    metric = about.objective.metric
    if ranked.versus_base is not None:
        said = f", {against(metric, ranked.versus_base, 'the base')}"
        verdict = about.verdicts.get(ranked.config_id)
        return f"{said}: {said_by(verdict, about.study)}" if verdict else said
    runs, base = about.runs[ranked.config_id], about.fixed.get("base", {})
    shared = [runs[pair] - base[pair] for pair in runs.keys() & base.keys()]
    if len(shared) == 1:
        (alone,) = shared
        side = "below" if alone < 0 else "above" if alone > 0 else "from"
        return f", {amount(metric, alone)} {side} the base on the one run they share"
    if ranked.interval is not None:
        return ", and fewer than two runs in common with the base: not compared"
    return ""


def _listed(names: Sequence[str]) -> str:
    if len(names) > _MOST_NAMES:
        return f"{len(names)} configs"
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
