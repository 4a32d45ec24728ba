"""The panels of a report, in the order of the page.

A panel is a function from the evidence to a `Panel`, or to None where it has nothing to say. It knows nothing
of HTML, so that a page in a file and a page that updates itself show the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cbe.report.page.evidence import Evidence
from cbe.report.page.panel import Panel
from cbe.report.page.panels.ablation import ablation
from cbe.report.page.panels.confusions import confusions
from cbe.report.page.panels.curves import curves
from cbe.report.page.panels.history import history
from cbe.report.page.panels.intervals import intervals
from cbe.report.page.panels.machines import machines
from cbe.report.page.panels.matters import matters
from cbe.report.page.panels.paper import heads, lemma, pseudo_labels
from cbe.report.page.panels.parallel import parallel
from cbe.report.page.panels.pareto import pareto
from cbe.report.page.panels.race import race
from cbe.report.page.panels.slices import slices

Maker = Callable[[Evidence], Panel | None]

SEARCH: tuple[Maker, ...] = (race, history, curves, pareto, matters, parallel, slices)
CONFIGS: tuple[Maker, ...] = (intervals,)
PAPER: tuple[Maker, ...] = (pseudo_labels, ablation, confusions, heads, lemma)
COST: tuple[Maker, ...] = (machines,)
PANELS: tuple[Maker, ...] = (*SEARCH, *CONFIGS, *PAPER, *COST)


def panels(evidence: Evidence, makers: Sequence[Maker] = PANELS) -> list[Panel]:
    """The panels that have something to say about this study."""
    return [panel for each in makers if (panel := each(evidence))]
