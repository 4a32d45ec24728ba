"""One training step, from the images to the updated weights, with the paper's equations beside the lines.

Nothing here waits for the device: no value is read, no branch depends on one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cbe.nn import Prediction
from cbe.ssl import losses
from cbe.training.optimiser import learning_rate, set_rate
from cbe.training.run import Run


def train_step(run: Run) -> None:
    """Augment, forward, losses, backward, update."""
    config, method, λ = run.config, run.method, run.config.loss.weights
    batch = run.batches.draw()
    labels = batch.labels.repeat(config.loss.labeled_views)

    labeled, student, teacher = views_and_forward(run, batch.labeled, batch.unlabeled)
    terms = {"labeled": losses.supervised(labeled.logits, labels)}  # L_l, eq. 1
    total = λ.labeled * terms["labeled"]

    if student is not None and teacher is not None:
        p = teach(run, teacher, batch.indices, batch.all_indices)  # p[i,2,m]
        weight = run.policy(p, run.world.gather(p), batch.all_indices)  # 𝒯(max p[i,2,m] > τ), [μB, M]
        p = sharpened(p, config.method.temperature or 1.0)
        if config.heads == 1:  # no ensemble: the method as it was published
            target, kept = p[:, 0], weight[:, 0]
            terms["unlabeled"] = method.loss(student.logits, p, weight)
        else:
            soft = config.loss.target == "soft"
            target = (
                losses.soft_target(p, weight)
                if soft
                else losses.hard_target(p, weight, config.loss.agreement)
            )
            kept = target.sum(dim=1)  # P̄[i,2], eq. 2
            terms["unlabeled"] = losses.ensemble(student.logits, target)  # L_e, eq. 3
        total = total + ramp(run) * (λ.unlabeled or 0.0) * terms["unlabeled"]
        if method.extra and config.method.fairness:
            terms["fairness"] = method.extra(run.policy, student.logits, weight, run.world)
            total = total + config.method.fairness * terms["fairness"]
        run.meter.pseudo_labels(target, weight, kept, config.loss.agreement, batch.truth)

    private = (student or labeled).private  # without unlabeled images the labeled ones must do
    if λ.lb and private is not None:
        terms["lb"] = losses.low_bias(private, config.loss.lb_correlation, config.loss.lb_pairs)  # L_fu
        total = total + λ.lb * terms["lb"]
    if λ.lv:
        terms["lv"] = losses.low_variance(run.world.gather(labeled.logits), run.world.gather(labels))  # L_lv
        total = total + λ.lv * terms["lv"]

    run.optimiser.zero_grad(set_to_none=True)
    total.backward()  # L = λ_l·L_l + λ_e·L_e + λ_fu·L_fu + λ_lv·L_lv
    set_rate(run.optimiser, learning_rate(config.training, run.step))
    run.optimiser.step()
    run.ema.update()
    run.meter.losses(run.step, {"loss": total, **terms})
    run.step += 1


def views_and_forward(
    run: Run, labeled: Tensor, unlabeled: Tensor
) -> tuple[Prediction, Prediction | None, Prediction | None]:
    """Predictions of the labeled views, of view 1 (student) and of view 2 (teacher).

    `joint` puts all views through one forward; `split` runs view 2 by itself, without gradient.
    """
    method, copies = run.method, run.config.loss.labeled_views
    rows = copies * len(labeled)
    repeated = [labeled] * copies
    with run.mode.autocast():
        if method.student is None:
            return run.forward(run.inputs(run.weak(torch.cat(repeated)))), None, None
        view1 = run.strong(unlabeled) if method.student == "strong" else run.weak(unlabeled)
        if method.teacher == "same":
            both = run.forward(run.inputs(run.weak(torch.cat(repeated)), view1))
            student = both.rows(rows, len(both.logits))
            return both.rows(0, rows), student, student
        weak = run.weak(torch.cat([*repeated, unlabeled]))  # one call for the labeled views and view 2
        if method.teacher == "weak" and run.config.training.forward == "joint":
            every = run.forward(run.inputs(weak, view1))
            middle = rows + len(unlabeled)
            return every.rows(0, rows), every.rows(middle, len(every.logits)), every.rows(rows, middle)
        with torch.no_grad():
            teacher = (run.teacher if method.teacher == "ema" else run.forward)(run.inputs(weak[rows:]))
        both = run.forward(run.inputs(weak[:rows], view1))
        return both.rows(0, rows), both.rows(rows, len(both.logits)), teacher


def teach(run: Run, teacher: Prediction, indices: Tensor, all_indices: Tensor) -> Tensor:
    """View 2's probabilities [N, M, K] without gradient; for `temporal`, averaged over an image's past."""
    p = teacher.logits.detach().float().softmax(dim=2)
    if run.past is None:
        return p
    run.past.remember(run.world.gather(p), all_indices)
    averaged: Tensor = run.past(indices)
    return averaged


def sharpened(p: Tensor, temperature: float) -> Tensor:
    """softmax(logits/T), from the probabilities."""
    if temperature == 1.0:
        return p
    return (p.clamp_min(1e-12).log() / temperature).softmax(dim=2)


def ramp(run: Run) -> float:
    """min(1, t/(ramp·T)): how much of the unsupervised weight is in force."""
    length = (run.config.method.ramp or 0.0) * run.config.training.steps
    return min(1.0, run.step / length) if length else 1.0
