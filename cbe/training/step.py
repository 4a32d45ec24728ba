"""One training step, from the images to the updated weights, with the paper's equations beside the lines.

Nothing here waits for the device: no value is read, no branch depends on one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cbe.nn import Prediction
from cbe.ssl import losses
from cbe.training.batches import Batch
from cbe.training.forward import forward
from cbe.training.optimiser import learning_rate, set_rate
from cbe.training.run import Run


def train_step(run: Run) -> None:
    """Augment, forward, losses, backward, update."""
    config, loss, method, world = run.config, run.config.loss, run.method, run.world
    batch = run.batches.draw()
    labels = batch.labels.repeat(loss.labeled_views)
    labeled, student, teacher = forward(run, batch.labeled, batch.unlabeled)

    L = {"labeled": losses.supervised(labeled.logits, labels)}  # L_l, eq. 1
    if student is not None and teacher is not None:
        p = teach(run, teacher, batch)  # p[i,2,m], [μB, M, K]
        weight = run.policy(p, world.gather(p), batch.all_indices)  # 𝒯(max p[i,2,m] ≥ τ), [μB, M]
        p = sharpened(p, config.method.temperature or 1.0)
        if config.heads == 1:  # no ensemble: the method as it was published
            target, used = p[:, 0], weight[:, 0]
            L["unlabeled"] = method.loss(student.logits, p, weight)
        else:
            target = losses.ensemble_target(p, weight, loss.target, loss.agreement)  # P̄[i,2], eq. 2
            used = target.sum(dim=1)
            L["unlabeled"] = losses.ensemble(student.logits, target)  # L_e, eq. 3
        if method.extra and config.method.fairness:
            L["fairness"] = method.extra(run.policy, student.logits, weight, world)
        run.meter.pseudo_labels(target, weight, used, loss.agreement, batch.truth)
    private = (student or labeled).private  # without unlabeled images the labeled ones must do
    if loss.weights.lb and private is not None:
        private = world.gather(private) if loss.lb_pairs == "ring" else private  # `ring` is over the batch
        L["lb"] = losses.low_bias(private, loss.lb_correlation, loss.lb_pairs)  # L_fu
    if loss.weights.lv:
        L["lv"] = losses.low_variance(world.gather(labeled.logits), world.gather(labels))  # L_lv
    λ = weights(run)
    total = torch.stack([λ[name] * term for name, term in L.items()]).sum()

    run.optimiser.zero_grad(set_to_none=True)
    total.backward()  # L = λ_l·L_l + λ_e·L_e + λ_fu·L_fu + λ_lv·L_lv
    set_rate(run.optimiser, learning_rate(config.training, run.step))
    run.optimiser.step()
    run.ema.update(run.step)
    run.meter.losses(run.step, {"loss": total, **L})
    run.step += 1


def teach(run: Run, teacher: Prediction, batch: Batch) -> Tensor:
    """View 2's probabilities without gradient; for `temporal`, averaged over each image's past."""
    p = teacher.logits.detach().float().softmax(dim=2)
    if run.past is None:
        return p
    run.past.remember(run.world.gather(p), batch.all_indices)
    averaged: Tensor = run.past(batch.indices)
    return averaged


def sharpened(p: Tensor, temperature: float) -> Tensor:
    """softmax(logits/T), from the probabilities."""
    if temperature == 1.0:
        return p
    return (p.clamp_min(1e-12).log() / temperature).softmax(dim=2)


def weights(run: Run) -> dict[str, float]:
    """λ of each term in this step; the unsupervised one grows as min(1, t/(ramp·T))."""
    λ, method = run.config.loss.weights, run.config.method
    length = (method.ramp or 0.0) * run.config.training.steps
    ramp = min(1.0, run.step / length) if length else 1.0
    return {
        "labeled": λ.labeled,
        "unlabeled": ramp * (λ.unlabeled or 0.0),
        "fairness": method.fairness or 0.0,
        "lb": λ.lb or 0.0,
        "lv": λ.lv or 0.0,
    }
