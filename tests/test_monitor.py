import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Generator, Tensor

import oracles
from fedgala import monitor
from fedgala.errors import DataError

seeds = st.integers(0, 2**16)
sizes = st.tuples(st.integers(2, 12), st.integers(1, 9))


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=Generator().manual_seed(seed), dtype=torch.float64)


def rotation(seed: int, size: int) -> Tensor:
    rotated: Tensor = torch.linalg.qr(normal(seed, size, size)).Q
    return rotated


# By hand.


def test_alignment_by_hand() -> None:
    first = torch.tensor([[1.0, 0.0], [0.0, 3.0], [2.0, 0.0]])
    second = torch.tensor([[5.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])  # the same, orthogonal, opposed
    assert monitor.alignment(first, second).item() == pytest.approx((0 + 2 + 4) / 3)


def test_uniformity_by_hand() -> None:
    assert monitor.uniformity(torch.tensor([[1.0, 0.0], [-9.0, 0.0]])).item() == pytest.approx(-8)
    assert monitor.uniformity(torch.tensor([[1.0, 0.0], [0.0, 2.0]])).item() == pytest.approx(-4)
    three = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]])  # pairs at squared distances 0, 2, 2
    assert monitor.uniformity(three).item() == pytest.approx(math.log((1 + 2 * math.exp(-4)) / 3))


def test_effective_rank_by_hand() -> None:
    cross = torch.tensor([[1.0, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0]])
    assert monitor.effective_rank(cross).item() == pytest.approx(2)
    assert monitor.effective_rank(cross + 100).item() == pytest.approx(2, rel=1e-5)  # the mean is no direction
    stretched = cross * torch.tensor([3.0, 1.0, 1.0])  # singular values 3 : 1
    assert monitor.effective_rank(stretched).item() == pytest.approx(
        math.exp(-0.75 * math.log(0.75) + 0.25 * math.log(4))
    )
    assert monitor.effective_rank(torch.tensor([[0.0, 1.0], [4.0, 2.0]])).item() == pytest.approx(1)


def test_knn_by_hand() -> None:
    bank = torch.tensor([[1.0, 0.0], [1.0, 0.2], [0.0, 1.0], [0.1, 1.0], [-1.0, 0.1]])
    classes = torch.tensor([0, 0, 1, 1, 2])
    queries = torch.tensor([[9.0, 1.0], [1.0, 9.0], [-1.0, 0.0], [-1.0, 0.0]])
    assert monitor.knn_accuracy(bank, classes, queries, torch.tensor([0, 1, 2, 0]), k=1).item() == 0.75
    # The nearest image outweighs two at right angles when the temperature is low, and is outvoted when it is high.
    query, truth = torch.tensor([[-1.0, 0.0]]), torch.tensor([2])
    assert monitor.knn_accuracy(bank, classes, query, truth, k=3, temperature=0.07).item() == 1
    assert monitor.knn_accuracy(bank, classes, query, truth, k=3, temperature=50.0).item() == 0


def test_leave_one_out_by_hand() -> None:
    features = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0], [0.0, -1.0]])
    labels = torch.tensor([0, 0, 1, 1, 1])  # the last has no neighbour of its class
    assert monitor.knn_accuracy(features, labels, features, labels, k=1).item() == 1
    assert monitor.knn_accuracy_leave_one_out(features, labels, k=1).item() == pytest.approx(0.8)


# Collapse, and other edges.


@pytest.mark.parametrize("row", [[0.0, 0.0, 0.0], [0.1, -0.7, 1e4], [1e-30, 0.0, 0.0]])
def test_collapsed_features_have_defined_values(row: list[float]) -> None:
    features, labels = torch.tensor([row] * 101), torch.tensor([1] * 60 + [0] * 41)
    assert monitor.alignment(features, features).item() == 0
    assert monitor.uniformity(features).item() == pytest.approx(0, abs=1e-5)
    assert monitor.effective_rank(features).item() == 0
    assert monitor.knn_accuracy(features, labels, features, labels).item() == pytest.approx(60 / 101)
    assert monitor.knn_accuracy_leave_one_out(features, labels).item() == pytest.approx(60 / 101)
    assert monitor.knn_accuracy_leave_one_out(features[:100], torch.arange(100) % 2).item() == 0


def test_collapse_up_to_rounding_is_collapse() -> None:
    """One direction at many lengths differs in the last bits of its cosines; an offset leaves noise around its mean."""
    line = torch.linspace(1, 3, 101)[:, None] * normal(0, 1, 37).float()
    labels = torch.tensor([1] * 52 + [0] * 49)
    assert monitor.knn_accuracy(line, labels, line, labels).item() == pytest.approx(52 / 101)
    assert monitor.uniformity(line).item() == pytest.approx(0, abs=1e-5)
    assert monitor.effective_rank(line).item() == pytest.approx(1, abs=1e-4)
    noise = normal(1, 101, 8)
    assert monitor.effective_rank(100 + 1e-7 * noise).item() == 0
    assert monitor.effective_rank(100 + 1e-2 * noise).item() == pytest.approx(oracles.effective_rank(noise), rel=1e-5)


def test_ties_go_to_the_lowest_class() -> None:
    bank, query = torch.tensor([[1.0, 1.0], [1.0, 1.0]]), torch.tensor([[1.0, 1.0]])
    assert monitor.knn_accuracy(bank, torch.tensor([3, 1]), query, torch.tensor([1]), k=1).item() == 1


def test_features_that_are_not_finite_give_nan() -> None:
    features, labels = torch.randn(6, 3, generator=Generator().manual_seed(0)), torch.arange(6) % 2
    for value in (torch.nan, torch.inf):
        bad = features.clone()
        bad[1, 1] = value
        assert monitor.alignment(bad, features).isnan()
        assert monitor.uniformity(bad).isnan()
        assert monitor.effective_rank(bad).isnan()
        assert monitor.knn_accuracy(features, labels, bad, labels).isnan()
        assert monitor.knn_accuracy(bad, labels, features, labels).isnan()
        assert monitor.knn_accuracy_leave_one_out(bad, labels).isnan()


def test_too_few_images_and_wrong_settings_are_refused() -> None:
    one, label = torch.ones(1, 2), torch.tensor([0])
    with pytest.raises(DataError, match=r"at least 2 image\(s\), got 1"):
        monitor.uniformity(one)
    with pytest.raises(DataError, match="at least 2"):
        monitor.knn_accuracy_leave_one_out(one, label)
    with pytest.raises(DataError, match="at least 1"):
        monitor.effective_rank(one[:0])
    with pytest.raises(ValueError, match="k is 0"):
        monitor.knn_accuracy(one, label, one, label, k=0)
    with pytest.raises(ValueError, match="shapes"):
        monitor.alignment(one, torch.ones(2, 2))


# Against the oracles.


@settings(max_examples=25, deadline=None)
@given(seeds, sizes)
def test_label_free_monitors_agree_with_the_oracles(seed: int, size: tuple[int, int]) -> None:
    first, second = normal(seed, *size), normal(seed + 1, *size)
    assert monitor.alignment(first, second).item() == pytest.approx(oracles.alignment(first, second))
    assert monitor.uniformity(first).item() == pytest.approx(oracles.uniformity(first))
    assert monitor.effective_rank(first).item() == pytest.approx(oracles.effective_rank(first), rel=1e-5)
    single = first.float()
    assert monitor.uniformity(single).item() == pytest.approx(oracles.uniformity(first), rel=1e-4, abs=1e-5)


@settings(max_examples=25, deadline=None)
@given(seeds, st.integers(1, 30), st.sampled_from([0.07, 1.0]))
def test_knn_agrees_with_the_oracle(seed: int, k: int, temperature: float) -> None:
    """k runs past the 14 images there are."""
    bank, queries = normal(seed, 14, 3), normal(seed + 1, 9, 3)
    classes, truth = torch.arange(14) % 3, torch.arange(9) % 4
    answers = oracles.knn_predictions(bank, classes, queries, k, temperature)
    share = (torch.tensor(answers) == truth).double().mean().item()
    assert monitor.knn_accuracy(bank, classes, queries, truth, k, temperature).item() == pytest.approx(share)
    answers = oracles.knn_predictions(bank, classes, bank, k, temperature, leave_one_out=True)
    share = (torch.tensor(answers) == classes).double().mean().item()
    assert monitor.knn_accuracy_leave_one_out(bank, classes, k, temperature).item() == pytest.approx(share)


def test_blocks_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    features, labels = normal(3, 50, 4).float(), torch.arange(50) % 3
    whole = monitor.uniformity(features), monitor.knn_accuracy_leave_one_out(features, labels, k=5)
    for entries in (1, 7 * 50):  # one row at a time; blocks of 7 and a last one of 1
        monkeypatch.setattr(monitor, "_BLOCK", entries)
        torch.testing.assert_close(monitor.uniformity(features), whole[0], atol=1e-6, rtol=0)
        assert monitor.knn_accuracy_leave_one_out(features, labels, k=5) == whole[1]


# Properties.


@settings(max_examples=25, deadline=None)
@given(seeds, sizes)
def test_rotation_changes_nothing(seed: int, size: tuple[int, int]) -> None:
    first, second, turn = normal(seed, *size), normal(seed + 1, *size), rotation(seed + 2, size[1])
    labels = torch.arange(size[0]) % 2
    torch.testing.assert_close(monitor.alignment(first @ turn, second @ turn), monitor.alignment(first, second))
    torch.testing.assert_close(monitor.uniformity(first @ turn), monitor.uniformity(first))
    torch.testing.assert_close(monitor.effective_rank(first @ turn), monitor.effective_rank(first), rtol=1e-5, atol=0)
    before, after = (monitor.knn_accuracy_leave_one_out(x, labels, k=3) for x in (first, first @ turn))
    assert before == after


@settings(max_examples=25, deadline=None)
@given(seeds, sizes, st.integers(-60, 60))
def test_scale_changes_nothing(seed: int, size: tuple[int, int], power: int) -> None:
    """One factor for all; where only directions count, also one per image. Powers of two, as far as float32 goes."""
    first, second = normal(seed, *size).float(), normal(seed + 1, *size).float()
    scale = 2.0**power
    per_image = scale * torch.linspace(0.5, 2, size[0])[:, None]
    labels = torch.arange(size[0]) % 2
    torch.testing.assert_close(monitor.effective_rank(scale * first), monitor.effective_rank(first))
    torch.testing.assert_close(monitor.alignment(per_image * first, second), monitor.alignment(first, second))
    torch.testing.assert_close(monitor.uniformity(per_image * first), monitor.uniformity(first), atol=1e-6, rtol=1e-6)
    assert monitor.knn_accuracy(first, labels, scale * second, labels, k=3) == monitor.knn_accuracy(
        first, labels, second, labels, k=3
    )


@settings(max_examples=25, deadline=None)
@given(seeds, sizes)
def test_bounds(seed: int, size: tuple[int, int]) -> None:
    first, second = normal(seed, *size), normal(seed + 1, *size)
    assert 0 <= monitor.alignment(first, second) <= 4 + 1e-9
    assert -8 - 1e-9 <= monitor.uniformity(first) <= 1e-9
    assert 1 - 1e-9 <= monitor.effective_rank(first) <= min(size[0] - 1, size[1]) + 1e-5
    assert monitor.alignment(first, -first).item() == pytest.approx(4)


@settings(max_examples=25, deadline=None)
@given(seeds, sizes)
def test_the_order_of_images_changes_nothing(seed: int, size: tuple[int, int]) -> None:
    features, labels = normal(seed, *size), torch.arange(size[0]) % 3
    order = torch.randperm(size[0], generator=Generator().manual_seed(seed))
    torch.testing.assert_close(monitor.uniformity(features[order]), monitor.uniformity(features))
    torch.testing.assert_close(
        monitor.effective_rank(features[order]), monitor.effective_rank(features), rtol=1e-5, atol=0
    )
    before = monitor.knn_accuracy_leave_one_out(features, labels, k=2)
    assert monitor.knn_accuracy_leave_one_out(features[order], labels[order], k=2) == before
