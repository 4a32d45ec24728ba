"""Every loss against a slow reference written in loops straight from its equation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cbe.ssl import losses

shapes = st.tuples(st.integers(1, 6), st.integers(1, 5), st.integers(2, 7))  # N, M, K
seeds = st.integers(0, 2**31)
few = settings(max_examples=40, deadline=None)


def softmax(row: list[float]) -> list[float]:
    top = max(row)
    powers = [math.exp(x - top) for x in row]
    return [x / sum(powers) for x in powers]


def correlation(a: list[float], b: list[float]) -> float:
    mean_a, mean_b = sum(a) / len(a), sum(b) / len(b)
    top = sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b, strict=True))
    below = math.sqrt(sum((x - mean_a) ** 2 for x in a) * sum((y - mean_b) ** 2 for y in b))
    return top / below if below > 1e-6 else 0.0


def draw(shape: tuple[int, ...], seed: int, scale: float = 3.0) -> Tensor:
    return scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def probabilities(shape: tuple[int, ...], seed: int) -> Tensor:
    return draw(shape, seed).softmax(dim=-1)


@few
@given(shapes, seeds)
def test_supervised_loss_is_eq_1(shape: tuple[int, int, int], seed: int) -> None:
    n, m, k = shape
    logits, labels = draw(shape, seed), torch.randint(k, (n,), generator=torch.Generator().manual_seed(seed))
    total = 0.0
    for i in range(n):
        for head in range(m):
            total -= math.log(softmax(logits[i, head].tolist())[labels[i]])
    assert losses.supervised(logits, labels).item() == pytest.approx(total / n / m, rel=1e-4, abs=1e-5)


@few
@given(shapes, seeds, st.floats(0.1, 0.99))
def test_soft_target_is_eq_2_and_sums_to_the_share_of_confident_heads(
    shape: tuple[int, int, int], seed: int, threshold: float
) -> None:
    n, m, k = shape
    p = probabilities(shape, seed)
    weight = (p.amax(2) >= threshold).float()
    target = losses.soft_target(p, weight)
    for i in range(n):
        confident = [head for head in range(m) if max(p[i, head].tolist()) >= threshold]
        wanted = [sum(p[i, head, c].item() for head in confident) / m for c in range(k)]
        assert target[i].tolist() == pytest.approx(wanted, abs=1e-5)
        assert target[i].sum().item() == pytest.approx(len(confident) / m, abs=1e-5)


@few
@given(shapes, seeds, st.floats(0.1, 0.99), st.sampled_from([0.2, 0.4, 0.6, 0.8, 1.0]))
def test_hard_target_is_the_class_of_all_heads_where_enough_agree(
    shape: tuple[int, int, int], seed: int, threshold: float, agreement: float
) -> None:
    n, m, k = shape
    p = probabilities(shape, seed)
    target = losses.hard_target(p, (p.amax(2) >= threshold).float(), agreement)
    for i in range(n):
        confident = sum(max(p[i, head].tolist()) >= threshold for head in range(m))
        means = [sum(p[i, head, c].item() for head in range(m)) for c in range(k)]
        wanted = [0.0] * k
        if confident / m >= agreement - 1e-6:
            wanted[max(range(k), key=means.__getitem__)] = confident / m
        assert target[i].tolist() == pytest.approx(wanted, abs=1e-6)


def test_four_of_five_heads_reach_an_agreement_of_four_fifths() -> None:
    p = torch.tensor([[[0.95, 0.05]] * 4 + [[0.6, 0.4]]])
    target = losses.hard_target(p, (p.amax(2) >= 0.9).float(), 0.8)
    assert target.tolist() == [[pytest.approx(0.8), 0.0]]


@few
@given(shapes, seeds)
def test_ensemble_loss_is_eq_3_over_all_samples(shape: tuple[int, int, int], seed: int) -> None:
    n, m, k = shape
    logits, p = draw(shape, seed), probabilities(shape, seed + 1)
    target = losses.soft_target(p, (p.amax(2) >= 0.6).float())
    total = 0.0
    for i in range(n):
        for head in range(m):
            q = softmax(logits[i, head].tolist())
            total -= sum(target[i, c].item() * math.log(q[c]) for c in range(k))
    assert losses.ensemble(logits, target).item() == pytest.approx(total / n / m, rel=1e-4, abs=1e-5)


@few
@given(shapes, seeds)
def test_one_head_losses_weigh_each_sample_and_divide_by_all(shape: tuple[int, int, int], seed: int) -> None:
    n, _, k = shape
    logits, p = draw((n, 1, k), seed), probabilities((n, 1, k), seed + 1)
    weight = torch.rand(n, 1, generator=torch.Generator().manual_seed(seed))
    hard = soft = squared = 0.0
    for i in range(n):
        q, target, w = softmax(logits[i, 0].tolist()), p[i, 0].tolist(), weight[i, 0].item()
        hard -= w * math.log(q[target.index(max(target))])
        soft -= w * sum(t * math.log(x) for t, x in zip(target, q, strict=True))
        squared += w * sum((t - x) ** 2 for t, x in zip(target, q, strict=True)) / k
    wanted = {
        losses.hard_cross_entropy: hard,
        losses.soft_cross_entropy: soft,
        losses.squared_error: squared,
    }
    for loss, total in wanted.items():
        assert loss(logits, p, weight).item() == pytest.approx(total / n, rel=1e-4, abs=1e-5)


@few
@given(st.tuples(st.integers(1, 4), st.integers(2, 5), st.integers(3, 12)), seeds)
def test_low_bias_is_the_mean_correlation_of_all_pairs(shape: tuple[int, int, int], seed: int) -> None:
    n, m, _ = shape
    private = draw(shape, seed)
    size = {"abs": abs, "square": lambda r: r * r, "signed": lambda r: r}
    for kind, of in size.items():
        total = 0.0
        for i in range(n):
            for a in range(m):
                for b in range(m):
                    if a != b:
                        total += of(correlation(private[i, a].tolist(), private[i, b].tolist()))
        found = losses.low_bias(private, kind)  # type: ignore[arg-type]
        assert found.item() == pytest.approx(total / m / n, rel=1e-3, abs=1e-4)


def test_low_bias_over_a_ring_takes_the_whole_batch_and_moves_the_first_of_each_two() -> None:
    private = draw((3, 4, 6), 0).requires_grad_()
    total = 0.0
    for head in range(4):
        a, b = (private[:, h].flatten().tolist() for h in (head, (head + 1) % 4))
        total += abs(correlation(a, b))
    loss = losses.low_bias(private, "abs", "ring")
    assert loss.item() == pytest.approx(total / 4, rel=1e-4)
    pair = draw((3, 2, 6), 1).requires_grad_()
    flat = pair.transpose(0, 1).flatten(1)
    one_sided = losses.pearson(flat[0], flat[1].detach()).abs() / 2
    (wanted,) = torch.autograd.grad(one_sided, pair, retain_graph=True)
    (found,) = torch.autograd.grad(losses.low_bias(pair, "abs", "ring"), pair)
    torch.testing.assert_close(found[:, 0], wanted[:, 0])


def test_low_bias_is_zero_for_uncorrelated_and_maximal_for_identical_features() -> None:
    waves = torch.stack([torch.tensor([1.0, -1, 1, -1]), torch.tensor([1.0, 1, -1, -1])])
    assert losses.low_bias(waves.unsqueeze(0)).item() == pytest.approx(0, abs=1e-6)
    same = waves[:1].repeat(3, 1).unsqueeze(0)
    assert losses.low_bias(same).item() == pytest.approx(2, abs=1e-5)  # M − 1: each head with all others
    assert losses.low_bias(draw((5, 3, 4), 3)).item() < 2


@few
@given(st.tuples(st.integers(1, 6), st.integers(1, 5), st.integers(2, 7)), seeds)
def test_low_variance_is_one_minus_the_correlation_with_the_labels(
    shape: tuple[int, int, int], seed: int
) -> None:
    n, m, k = shape
    logits, labels = draw(shape, seed), torch.randint(k, (n,), generator=torch.Generator().manual_seed(seed))
    predicted, wanted = [], []
    for i in range(n):
        heads = [softmax(logits[i, head].tolist()) for head in range(m)]
        for c in range(k):
            predicted.append(sum(head[c] for head in heads) / m)
            wanted.append(float(labels[i] == c))
    found = losses.low_variance(logits, labels).item()
    assert found == pytest.approx(1 - correlation(predicted, wanted), abs=1e-3)


@few
@given(st.integers(1, 6), st.integers(1, 5), seeds)
def test_low_variance_does_not_change_when_classes_are_renumbered(n: int, m: int, seed: int) -> None:
    logits, labels = draw((n, m, 5), seed), torch.arange(n) % 5
    order = torch.tensor(np.random.default_rng(seed).permutation(5))
    renumbered = torch.argsort(order)[labels]
    there = losses.low_variance(logits, labels).item()
    assert losses.low_variance(logits[:, :, order], renumbered).item() == pytest.approx(there, abs=1e-5)


@pytest.mark.parametrize("value", [0.0, 1.0, -1e4, 1e-30])
@pytest.mark.parametrize("n", [1, 3])
def test_losses_of_constant_inputs_are_finite_and_so_are_their_gradients(value: float, n: int) -> None:
    logits = torch.full((n, 3, 4), value, requires_grad=True)
    private = torch.full((n, 3, 8), value, requires_grad=True)
    labels = torch.zeros(n, dtype=torch.int64)
    p = logits.detach().softmax(2)
    every = [
        losses.supervised(logits, labels),
        losses.low_variance(logits, labels),
        losses.ensemble(logits, losses.soft_target(p, torch.ones(n, 3))),
        losses.ensemble(logits, losses.soft_target(p, torch.zeros(n, 3))),
        losses.ensemble(logits, losses.hard_target(p, torch.zeros(n, 3), 0.8)),
        *(
            losses.low_bias(private, kind, pairs)
            for kind in ("abs", "square", "signed")
            for pairs in ("all", "ring")
        ),  # type: ignore[arg-type]
    ]
    sum(every).backward()  # type: ignore[union-attr]
    assert all(loss.isfinite() for loss in every)
    assert logits.grad is not None and logits.grad.isfinite().all()
    assert private.grad is not None and private.grad.isfinite().all()


def test_losses_are_float32_for_bfloat16_predictions() -> None:
    def every(logits: Tensor, private: Tensor) -> list[Tensor]:
        labels, weight = torch.arange(4), torch.ones(4, 3)
        p = logits.float().softmax(2)
        return [
            losses.supervised(logits, labels),
            losses.ensemble(logits, p.mean(1)),
            losses.low_bias(private),
            losses.low_bias(private, "abs", "ring"),
            losses.low_variance(logits, labels),
            losses.hard_cross_entropy(logits, p, weight),
            losses.soft_cross_entropy(logits, p, weight),
            losses.squared_error(logits, p, weight),
        ]

    logits, private = draw((4, 3, 5), 0).bfloat16(), draw((4, 3, 6), 1).bfloat16()
    rounded = zip(every(logits, private), every(logits.float(), private.float()), strict=True)
    assert all(a.dtype == torch.float32 and torch.equal(a, b) for a, b in rounded)
