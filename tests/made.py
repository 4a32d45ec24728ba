"""Studies that were never trained: their tables as the engine would have written them."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from cbe.spec import StudyConfig, TrainConfig
from cbe.spec.identity import columns, config_id
from cbe.spec.metrics import REPORTED, SUMMARIZED
from cbe.ssl import resolve
from cbe.store.folder import STUDY_FILE, Store, StudyFolder

SECTIONS: dict[str, Any] = {
    "question": "How many heads do digits need?",
    "data": {"labels": 40, "validation": 200},
    "model": {"name": "wrn-10-1", "bn_momentum": 0.05},
    "training": {"steps": 300, "eval_every": 50, "lr": 0.06, "ema": 0.98},
    "search": {"ensemble.heads": {"int": [2, 8]}, "loss.weights.lb": {"float": [0.1, 10], "log": True}},
    "budget": {"trials": 12},
    "confirm": {"configs": 1, "runs": 3},
}
_BEGUN = datetime(2026, 5, 4, 12, tzinfo=UTC)
CLASSES = 10
HOSTILE = (
    "</script><script>window.hit=1</script><img src=x onerror='window.hit=1'>"
    "<a href='javascript:window.hit=1'>here</a>{{7*7}}&amp;\u2028\u2029"
)


class Made:
    """A study's folder that a test fills trial by trial."""

    def __init__(self, store: Path | str, name: str = "made", **sections: Any) -> None:
        self.study = StudyConfig.model_validate({"name": name, **SECTIONS, **sections})
        self.folder: StudyFolder = Store.open(str(store)).study(name)
        self.folder.write(STUDY_FILE, yaml.safe_dump(self.study.to_plain(), sort_keys=False).encode())
        self._trials = 0

    def trial(
        self,
        error: float | None,
        point: Mapping[str, Any] | None = None,
        *,
        preset: str | None = None,
        role: str = "search",
        pair: tuple[int, int] = (0, 0),
        state: str = "completed",
        steps: int | None = None,
        **known: Any,
    ) -> str:
        """One trial that ended at this validation error, with its curve; returns its name."""
        name = f"{'c' if role == 'confirm' else 't'}{self._trials:04d}"
        begun = _BEGUN + timedelta(seconds=20 * self._trials)
        self._trials += 1
        config = resolve(self._config(point or {}, preset, pair))
        all_steps = config.training.steps
        ended = steps if steps is not None else all_steps if state == "completed" else all_steps // 3
        values = [self._value(each.metric, error, config, ended) for each in self.study.objectives]
        row = {
            **{"trial": name, "role": role, "preset": preset, "state": state, "config_id": config_id(config)},
            **{"params": json.dumps(dict(point or {})), "config": json.dumps(config.to_plain())},
            **{"seed": pair[0], "label_split": pair[1], "split": f"{pair[1]:016x}"},
            **{"objective": values[0], "values": None if None in values else values},
            **{"step": ended, "steps": all_steps, "parameters": 80_000, "macs": 5_000_000},
            **{"started": begun, "updated": begun + timedelta(seconds=ended / 15), "wall_s": ended / 15},
            **{"gpu_s": 0.0, "cost_usd": 0.0, "node": "node", "device": "cpu", "workers": 1, "retries": 0},
            **{"versions": json.dumps({"cbe": "0.1.0", "torch": "2.13.0"}), "git_commit": "0" * 40},
            **columns(config),
        }
        if error is not None:
            curve = self._curve(name, error, ended, begun, config)
            row |= {f"last_{name}": curve[-1][name] for name in SUMMARIZED}
            self.folder.append("metrics", curve)
            self.folder.append("confusions", [c for r in (curve[0], curve[-1]) for c in _matrices(name, r)])
        self.folder.append("trials", [row | known])
        return name

    def _config(self, point: Mapping[str, Any], preset: str | None, pair: tuple[int, int]) -> TrainConfig:
        if preset == "paper":
            return self.study.paper_config(*pair)
        return self.study.base_config(*pair) if preset else self.study.train_config(point, *pair)

    def _value(self, metric: str, error: float | None, config: TrainConfig, step: int) -> float | None:
        if error is None:
            return None
        costs = {
            "macs": 5e6 + 1e4 * config.heads,
            "parameters": 8e4 + 1e3 * config.heads,
            "wall_s": step / 15,
        }
        return costs.get(metric, error)

    def _curve(
        self, name: str, error: float, ended: int, begun: datetime, config: TrainConfig
    ) -> list[dict[str, Any]]:
        every = config.training.evaluation_interval
        rows = []
        for step in range(every, ended + 1, every):
            now = error + (0.9 - error) * math.exp(-6 * step / ended) * (step < ended)
            rows.append(
                {
                    **dict.fromkeys(REPORTED, now),
                    **{"trial": name, "step": step, "loss": 2 * now + 0.1, "loss_labeled": now, "lr": 0.06},
                    **{"loss_unlabeled": now / 2, "loss_lb": 0.2 * now, "loss_lv": 0.1 * now},
                    **{"pseudo_accuracy": 1 - now, "sampling_rate": 1 - now / 2, "steps_per_s": 15.0},
                    **{"sampling_rate_ensemble": 0.9 - now / 2, "validation_error": now},
                    **{"validation_loss": 3 * now, "test_error": min(1.0, now + 0.01)},
                    **{"head_correlation": 0.3 * now + 0.1, "head_disagreement": now / 3},
                    **{"variance_ensemble": now / 20, "variance_heads": now / 10},
                    **{"thresholds": [0.9] * CLASSES, "wall_s": step / 15},
                    "time": begun + timedelta(seconds=step / 15),
                }
            )
        return rows


def _matrices(name: str, report: Mapping[str, Any]) -> list[dict[str, Any]]:
    error = report["validation_error"]
    wrong = np.full((CLASSES, CLASSES), error * 20 / (CLASSES - 1))
    np.fill_diagonal(wrong, (1 - error) * 20)
    about = {"trial": name, "step": report["step"], "matrix": wrong.tolist()}
    return [{**about, "kind": kind} for kind in ("validation", "pseudo")]


def whole(store: Path | str, name: str = "made", **sections: Any) -> Made:
    """A finished study: presets, a search with stopped trials and a failed one, a confirmation."""
    made = Made(store, name, **sections)
    made.trial(0.08, preset="paper")
    made.trial(0.12, preset="base")
    for number, (heads, weight) in enumerate([(2, 0.2), (3, 0.5), (4, 1.0), (5, 2.0), (6, 4.0), (8, 8.0)]):
        made.trial(0.05 + 0.02 * abs(heads - 4), {"ensemble.heads": heads, "loss.weights.lb": weight})
        made.trial(
            0.4 + 0.01 * number, {"ensemble.heads": heads, "loss.weights.lb": weight / 2}, state="pruned"
        )
    made.trial(
        None,
        {"ensemble.heads": 7, "loss.weights.lb": 9.9},
        state="failed",
        steps=0,
        error_class="NonFiniteLoss",
        error_text="loss is not finite at step 12 <script>alert(1)</script>",
    )
    for number in (1, 2, 3):
        pair = (number, number)
        made.trial(0.09 + 0.004 * number, preset="paper", role="confirm", pair=pair)
        made.trial(0.12 + 0.005 * number, preset="base", role="confirm", pair=pair)
        made.trial(
            0.06 + 0.002 * number, {"ensemble.heads": 4, "loss.weights.lb": 1.0}, role="confirm", pair=pair
        )
    return made


def status(made: Made, state: str, **known: Any) -> None:
    content = {"state": state, "beat": time.time(), "elapsed_s": 240.0, **known}
    made.folder.write("status.json", json.dumps(content).encode())


def finished(store: Path, name: str = "made", **sections: Any) -> Made:
    """A study with something to say in every panel but the Pareto front."""
    made = whole(store, name, **sections)
    for heads, weight in ((2, 0.3), (3, 0.7), (5, 1.5), (7, 3.0)):
        made.trial(0.06 + 0.02 * abs(heads - 4), {"ensemble.heads": heads, "loss.weights.lb": weight})
    status(made, "finished")
    return made
