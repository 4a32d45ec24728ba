"""Threshold policies against values worked out by hand over three successive steps."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from cbe.spec import MethodSettings
from cbe.ssl.methods.flexmatch import Curriculum
from cbe.ssl.methods.freematch import SelfAdaptive
from cbe.ssl.methods.softmatch import TruncatedGaussian
from cbe.ssl.temporal import PastPredictions
from cbe.ssl.thresholds import Always, Fixed, Policy, Shape
from cbe.ssl.world import World


def shape(heads: int = 1, threshold: float = 0.875, momentum: float = 0.5) -> Shape:
    return Shape(heads, classes=2, images=4, settings=MethodSettings(threshold=threshold, momentum=momentum))


def two(first: list[float], second: list[float]) -> Tensor:
    """Predictions of one head for two images."""
    return torch.tensor([[first], [second]])


def apply(policy: Policy, probs: Tensor, images: tuple[int, int]) -> list[float]:
    weight: Tensor = policy(probs, probs, torch.tensor(images))
    return weight[:, 0].tolist()


def near(*values: float) -> object:
    return pytest.approx(list(values), abs=2e-5)


def test_flexmatch_counts_with_warm_up_before_it_masks() -> None:
    policy = Curriculum(shape())
    # Nothing chosen yet: β = 0, every prediction passes. Image 0 is exactly at .875, which counts.
    assert apply(policy, two([0.875, 0.125], [0.4, 0.6]), (0, 1)) == [1, 1]
    # Counts: class 0 once, class 1 never, 3 images not chosen. β = (1/3, 0): τ = .875·(1/3)/(5/3) = .175.
    assert policy.per_class()[0].tolist() == near(0.175, 0)
    assert apply(policy, two([0.2, 0.8], [0.9, 0.1]), (2, 3)) == [1, 1]
    # Class 0 twice, 2 not chosen: β_0 = 1, τ_0 = .875.
    assert policy.per_class()[0].tolist() == near(0.875, 0)
    assert apply(policy, two([0.8, 0.2], [0.1, 0.9]), (0, 1)) == [0, 1]
    # Image 0 stays chosen as 0; image 1 is now 1: β = (1, 1/2), τ_1 = .875·.5/1.5.
    assert policy.per_class()[0].tolist() == near(0.875, 0.875 / 3)


def test_flexmatch_is_the_same_whatever_the_order_of_a_repeated_image() -> None:
    outcomes = []
    for order in ([0, 1], [1, 0]):
        policy = Curriculum(shape())
        probs = two([0.95, 0.05], [0.05, 0.95])[order]
        apply(policy, probs, (2, 2))
        outcomes.append(policy.chosen.tolist())
    assert outcomes[0] == outcomes[1]


def test_flexmatch_keeps_a_confident_view_of_an_image_that_stands_twice() -> None:
    policy = Curriculum(shape())
    apply(policy, two([0.95, 0.05], [0.55, 0.45]), (2, 2))
    assert policy.chosen[:, 0].tolist() == [2, 2, 0, 2]  # 2 is never


def test_freematch_updates_before_it_masks() -> None:
    policy = SelfAdaptive(shape())
    # Mean confidence .8: τ = (.5+.8)/2; mean prediction (.8,.2): p̃ = (.65,.35); all class 0: h̃ = (.75,.25).
    assert apply(policy, two([0.9, 0.1], [0.7, 0.3]), (0, 1)) == [1, 1]
    assert policy.tau.tolist() == near(0.65)
    assert policy.profile[0].tolist() == near(0.65, 0.35)
    assert policy.histogram[0].tolist() == near(0.75, 0.25)
    assert policy.per_class()[0].tolist() == near(0.65, 0.35)
    # Mean confidence .7: τ = .675; p̃ = (.525,.475); threshold of class 1 is .675·.475/.525 = .610714.
    assert apply(policy, two([0.6, 0.4], [0.2, 0.8]), (2, 3)) == [0, 1]
    assert policy.per_class()[0].tolist() == near(0.675, 0.610714)
    # Mean confidence .6: τ = .6375; p̃ = (.5375,.4625); class 1: .6375·.4625/.5375 = .548547.
    assert apply(policy, two([0.65, 0.35], [0.45, 0.55]), (0, 1)) == [1, 1]
    assert policy.per_class()[0].tolist() == near(0.6375, 0.548547)
    assert policy.histogram[0].tolist() == near(0.5625, 0.4375)


def test_freematch_fairness_compares_class_profiles_of_masked_samples() -> None:
    policy = SelfAdaptive(shape())
    policy.profile.copy_(torch.tensor([[0.5375, 0.4625]]))
    policy.histogram.copy_(torch.tensor([[0.5625, 0.4375]]))
    # p̃/h̃ = (.955556, 1.057143), normalised (.474763, .525237); p̄ = (.55,.45), h̄ = (.5,.5).
    logits = two([0.8, 0.2], [0.3, 0.7]).log()
    both = policy.fairness(logits, torch.ones(2, 1), World())
    assert both.item() == pytest.approx(0.474763 * math.log(0.55) + 0.525237 * math.log(0.45), abs=1e-5)
    # Only the first: p̄ = (.8,.2), h̄ = (1,0): the second class has no prediction and falls out.
    first = policy.fairness(logits, torch.tensor([[1.0], [0.0]]), World())
    assert first.item() == pytest.approx(0.525237 * math.log(1e-12), rel=1e-4)


def test_freematch_fairness_is_skipped_when_nothing_is_masked() -> None:
    policy = SelfAdaptive(shape())
    logits = two([0.8, 0.2], [0.3, 0.7]).log().requires_grad_()
    loss = policy.fairness(logits, torch.zeros(2, 1), World())
    loss.backward()
    assert loss.item() == 0
    assert logits.grad is not None and logits.grad.abs().max().item() == 0


def test_softmatch_aligns_then_weighs_by_running_moments() -> None:
    policy = TruncatedGaussian(shape())
    # First batch sets the profile (.8,.2). Aligned confidences .692308 and .631579: mean .661943, unbiased
    # variance .001844; μ = (.5+.661943)/2, σ² = (1+.001844)/2. Both lie above μ.
    assert apply(policy, two([0.9, 0.1], [0.7, 0.3]), (0, 1)) == near(1, 1)
    assert policy.profile[0].tolist() == near(0.8, 0.2)
    assert policy.mean.tolist() == near(0.580972)
    assert policy.variance.tolist() == near(0.500922)
    # Profile (.675,.325): aligned .580645 and .675; μ = .604397, σ² = .252687; the first lies .023752 below:
    # exp(−.023752²/(2·.252687/4)) = .995545.
    assert apply(policy, two([0.6, 0.4], [0.5, 0.5]), (2, 3)) == near(0.995545, 1)
    assert policy.mean.tolist() == near(0.604397)
    assert policy.variance.tolist() == near(0.252687)
    # Profile (.6125,.3875): aligned .850610 and .863435; μ = .730710, σ² = .126385.
    assert apply(policy, two([0.9, 0.1], [0.2, 0.8]), (0, 1)) == near(1, 1)
    assert policy.mean.tolist() == near(0.730710)
    assert policy.variance.tolist() == near(0.126385)


def test_softmatch_of_a_single_image_stays_finite() -> None:
    policy = TruncatedGaussian(shape())
    probs = torch.tensor([[[1.0, 0.0]]])
    for _ in range(3):
        assert policy(probs, probs, torch.tensor([0])).isfinite().all()
    assert policy.variance.tolist() == [1.0]


def test_fixed_threshold_lets_equal_confidence_pass() -> None:
    assert apply(Fixed(shape()), two([0.875, 0.125], [0.874, 0.126]), (0, 1)) == [1, 0]
    assert apply(Always(shape()), two([0.5, 0.5], [0.874, 0.126]), (0, 1)) == [1, 1]


@pytest.mark.parametrize("kind", [Curriculum, SelfAdaptive, TruncatedGaussian])
def test_each_head_keeps_thresholds_of_its_own(kind: type[Policy]) -> None:
    several, alone = kind(shape(heads=2)), kind(shape())
    a, b = two([0.95, 0.05], [0.7, 0.3]), two([0.6, 0.4], [0.1, 0.9])
    images = torch.tensor([0, 1])
    for _ in range(2):
        together = torch.cat([a, b], dim=1)
        weight = several(together, together, images)
        torch.testing.assert_close(weight[:, :1], alone(a, a, images))
    torch.testing.assert_close(several.per_class()[:1], alone.per_class())
    assert not torch.equal(several.per_class()[0], several.per_class()[1])


@pytest.mark.parametrize("kind", [Fixed, Curriculum, SelfAdaptive, TruncatedGaussian])
def test_a_policy_continues_from_its_saved_state(kind: type[Policy]) -> None:
    first, second = kind(shape()), kind(shape())
    batch, images = two([0.95, 0.05], [0.3, 0.7]), torch.tensor([1, 3])
    first(batch, batch, images)
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(batch, batch, images), second(batch, batch, images))
    assert all(
        torch.equal(a, b)
        for a, b in zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    )


def test_past_predictions_are_averaged_without_the_empty_start() -> None:
    past = PastPredictions(images=3, classes=2, momentum=0.6)
    index = torch.tensor([1])
    past.remember(torch.tensor([[[0.9, 0.1]]]), index)
    assert past(index)[0, 0].tolist() == near(0.9, 0.1)
    past.remember(torch.tensor([[[0.4, 0.6]]]), index)
    # Z = .6·(.4·.9) + .4·.4 = .376, over 1−.36 = .64.
    assert past(index)[0, 0].tolist() == near(0.5875, 0.4125)
    assert past.visits.tolist() == [0, 2, 0]
