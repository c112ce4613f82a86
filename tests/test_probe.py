import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Generator, Tensor

import oracles
from fedgala import probe
from fedgala.errors import DataError, TrainingError
from fedgala.probe import Probes, Recipe


def generators(count: int, first: int = 0) -> list[Generator]:
    return [Generator().manual_seed(first + index) for index in range(count)]


def blobs(num_images: int, num_features: int, num_classes: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Classes that overlap, as features after a ReLU do."""
    generator = Generator().manual_seed(seed)
    labels = torch.arange(num_images) % num_classes
    centres = torch.randn(num_classes, num_features, generator=generator)
    return (centres[labels] + torch.randn(num_images, num_features, generator=generator)).relu(), labels


def test_stratified_splits_take_the_share_of_every_class() -> None:
    labels = torch.tensor([0] * 20 + [1] * 5 + [3] * 2 + [4])  # class 2 is absent, class 4 has a single image
    splits = probe.make_splits(labels, 0.3, generators(5))
    assert splits.train.shape == (5, 6 + 2 + 1) and splits.test.shape == (5, 14 + 3 + 1 + 1)
    for train, test in zip(splits.train, splits.test, strict=True):
        assert labels[train].bincount(minlength=5).tolist() == [6, 2, 0, 1, 0]
        assert torch.cat([train, test]).sort().values.equal(torch.arange(28))
    assert not splits.train[0].equal(splits.train[1])


def test_both_sides_of_a_split_keep_one_image_of_a_class_of_two() -> None:
    labels = torch.tensor([0, 0, 1, 1])
    for ratio in (0.01, 0.99):
        splits = probe.make_splits(labels, ratio, generators(3))
        assert labels[splits.train].tolist() == labels[splits.test].tolist() == [[0, 1]] * 3


def test_random_splits_ignore_the_classes() -> None:
    labels = torch.tensor([0] * 99 + [1])
    splits = probe.make_splits(labels, 0.299, generators(4), stratified=False)
    assert splits.train.shape == (4, 29) and splits.test.shape == (4, 71)
    assert splits.train[2].equal(torch.randperm(100, generator=Generator().manual_seed(2))[:29].sort().values)


@given(st.lists(st.integers(0, 4), min_size=4, max_size=40), st.floats(0.05, 0.95), st.booleans())
def test_splits_partition_the_images(classes: list[int], ratio: float, stratified: bool) -> None:
    try:
        splits = probe.make_splits(torch.tensor(classes), ratio, generators(3), stratified=stratified)
    except DataError:
        assert len(set(classes)) < 2 or len(set(classes)) == len(classes) or not stratified
        return
    both = torch.cat([splits.train, splits.test], dim=1).sort(dim=1).values
    assert both.equal(torch.arange(len(classes)).expand(3, -1))


def test_a_split_depends_on_its_own_generator_only() -> None:
    labels = torch.arange(60) % 3
    together = probe.make_splits(labels, 0.3, generators(4))
    alone = probe.make_splits(labels, 0.3, generators(1, first=2))
    assert together.train[2].equal(alone.train[0]) and together.test[2].equal(alone.test[0])


@pytest.mark.parametrize("stratified", [True, False])
def test_splits_that_cannot_be_are_refused(stratified: bool) -> None:
    with pytest.raises(DataError, match="at least 2 classes; these 9 are of 1"):
        probe.make_splits(torch.ones(9, dtype=torch.int64), 0.3, generators(1), stratified=stratified)
    with pytest.raises(DataError, match="leave 0 to train"):
        probe.make_splits(torch.arange(3), 0.1, generators(1), stratified=stratified)
    with pytest.raises(ValueError, match=r"ratio is 1\.0"):
        probe.make_splits(torch.arange(3), 1.0, generators(1), stratified=stratified)


def test_untrained_probes_are_fresh_linear_layers() -> None:
    features, labels = blobs(20, 6, 3)
    train = torch.arange(20).expand(2, -1)
    probes = probe.fit_probes(features, labels, train, generators(2), 3, Recipe(epochs=0))
    for seed in range(2):
        layer = oracles.linear_probe(features, labels, train[seed], seed, 3, 0, 1e-3, 8)
        assert probes.weight[seed].equal(layer.weight.float()) and probes.bias[seed].equal(layer.bias.float())


def test_first_step_of_adam_by_hand() -> None:
    """It moves a value by lr * g / (|g| + eps), whatever the gradient's size; a feature that is zero moves nothing."""
    features, labels = torch.tensor([[2.0, 0.0], [0.0, 0.0]], dtype=torch.float64), torch.tensor([0, 1])
    train = torch.tensor([[0, 1]])
    start = probe.fit_probes(features, labels, train, generators(1), 2, Recipe(epochs=0))
    after = probe.fit_probes(features, labels, train, generators(1), 2, Recipe(epochs=1, learning_rate=0.5))
    moved = after.weight[0] - start.weight[0]  # towards class 0 where the feature is 2
    torch.testing.assert_close(moved, torch.tensor([[0.5, 0.0], [-0.5, 0.0]], dtype=torch.float64), atol=1e-7, rtol=0)
    gap = float(start.weight[0, 0, 0] - start.weight[0, 1, 0]) * 2 + float(start.bias[0, 0] - start.bias[0, 1])
    shift = float(start.bias[0, 0] - start.bias[0, 1])
    gradient = (1 / (1 + math.exp(-gap)) - 1 + 1 / (1 + math.exp(-shift))) / 2  # of class 0's bias
    assert float(after.bias[0, 0] - start.bias[0, 0]) == pytest.approx(-math.copysign(0.5, gradient), abs=1e-6)


@pytest.mark.parametrize("batch_size", [16, 25, 500], ids=["short last batch", "even batches", "one batch"])
def test_agrees_with_a_plain_training_loop(batch_size: int) -> None:
    features, labels = blobs(120, 10, 4)
    splits = probe.make_splits(labels, 0.4, generators(3, first=50))
    recipe = Recipe(epochs=30, learning_rate=3e-3, batch_size=batch_size)
    fits = {kind: features.to(kind) for kind in (torch.float64, torch.float32)}
    probes = {kind: probe.fit_probes(x, labels, splits.train, generators(3), 4, recipe) for kind, x in fits.items()}
    tables = probe.linear_probe(features, labels, splits, generators(3), 4, recipe)
    for seed in range(3):
        layer = oracles.linear_probe(features, labels, splits.train[seed], seed, 4, 30, 3e-3, batch_size)
        for kind, tolerance in ((torch.float64, 1e-11), (torch.float32, 2e-5)):
            fit = probes[kind]
            torch.testing.assert_close(fit.weight[seed].double(), layer.weight.detach(), atol=tolerance, rtol=0)
            torch.testing.assert_close(fit.bias[seed].double(), layer.bias.detach(), atol=tolerance, rtol=0)
        assert tables[seed].tolist() == oracles.confusion(layer, features, labels, splits.test[seed])


def test_a_split_scores_the_same_alone_and_beside_others() -> None:
    features, labels = blobs(300, 32, 5)
    splits = probe.make_splits(labels, 0.3, generators(6))
    together = probe.fit_probes(features, labels, splits.train, generators(6, first=9), 5)
    alone = probe.fit_probes(features, labels, splits.train[4:5], generators(1, first=13), 5)
    torch.testing.assert_close(together.weight[4], alone.weight[0], atol=1e-4, rtol=0)
    torch.testing.assert_close(together.bias[4], alone.bias[0], atol=1e-4, rtol=0)
    tables = [
        probe.confusion(fit, features, labels, splits.test[4:5].expand(len(fit.bias), -1)) for fit in (together, alone)
    ]
    assert tables[0][4].equal(tables[1][0])


def test_confusion_by_hand() -> None:
    probes = Probes(torch.eye(3)[None], torch.tensor([[0.0, 0.0, 0.5]]))  # answers the largest feature; doubt goes to 2
    features = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0.1, 0.2, 0], [0, 0, 1], [1, 0, 0]])
    table = probe.confusion(probes, features, torch.tensor([0, 1, 1, 2, 1]), torch.tensor([[0, 1, 2, 4]]))
    assert table.tolist() == [[[1, 0, 0], [1, 1, 1], [0, 0, 0]]]
    assert probe.accuracy(table).tolist() == [0.5]


def test_separable_classes_are_learnt_and_absent_ones_do_no_harm() -> None:
    generator = Generator().manual_seed(0)
    labels = torch.tensor([0, 2, 5]).repeat(40)
    features = 3 * torch.eye(6)[labels] + 0.1 * torch.randn(120, 6, generator=generator)
    splits = probe.make_splits(labels, 0.1, generators(4))
    tables = probe.linear_probe(features, labels, splits, generators(4), 8, Recipe(learning_rate=0.1))
    assert tables.shape == (4, 8, 8) and probe.accuracy(tables).tolist() == [1.0] * 4
    assert tables.sum((0, 2)).tolist() == [144, 0, 144, 0, 0, 144, 0, 0]


def test_transfer_trains_on_the_source_and_tests_on_the_target() -> None:
    source, target = blobs(90, 8, 3), blobs(31, 8, 3, seed=1)
    recipe = Recipe(epochs=5, batch_size=32)
    tables = probe.transfer_probe(source, target, generators(2), 3, recipe)
    for seed in range(2):
        layer = oracles.linear_probe(*source, torch.arange(90), seed, 3, 5, 3e-3, 32)
        assert tables[seed].tolist() == oracles.confusion(layer, *target, torch.arange(31))


def test_collapsed_features_score_the_largest_class() -> None:
    labels = torch.tensor([0] * 70 + [1] * 30)
    splits = probe.make_splits(labels, 0.3, generators(2))
    tables = probe.linear_probe(torch.zeros(100, 4), labels, splits, generators(2), 2)
    assert probe.accuracy(tables).tolist() == pytest.approx([0.7, 0.7])


@settings(max_examples=10, deadline=None)
@given(st.permutations(range(4)))
def test_the_order_of_splits_does_not_matter(order: list[int]) -> None:
    features, labels = blobs(60, 5, 3)
    splits = probe.make_splits(labels, 0.3, generators(4))
    recipe = Recipe(epochs=5)
    straight = probe.fit_probes(features, labels, splits.train, generators(4), 3, recipe)
    permuted = probe.fit_probes(features, labels, splits.train[order], [generators(4)[i] for i in order], 3, recipe)
    torch.testing.assert_close(straight.weight[order], permuted.weight, atol=1e-5, rtol=0)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**16), st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64]))
def test_training_lowers_the_loss_on_its_own_images(seed: int, kind: torch.dtype) -> None:
    features, labels = blobs(40, 6, 4, seed)
    features = features.to(kind)
    train = torch.arange(40).expand(2, -1)
    losses = []
    for epochs in (0, 20):
        fit = probe.fit_probes(features, labels, train, generators(2), 4, Recipe(epochs=epochs, batch_size=16))
        logits = features.to(fit.weight) @ fit.weight.transpose(1, 2) + fit.bias[:, None]
        losses.append(torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.repeat(2)))
    assert losses[1] < losses[0]


def test_what_cannot_be_probed_is_refused_in_one_line() -> None:
    features, labels = blobs(12, 4, 3)
    train = torch.arange(12)[None]
    with pytest.raises(TrainingError, match="features of 1 of 12 images are not finite"):
        bad = features.clone()
        bad[3, 1] = torch.nan
        probe.fit_probes(bad, labels, train, generators(1), 3)
    with pytest.raises(DataError, match="labels run from 0 to 2, but 2 classes allow 0 to 1"):
        probe.fit_probes(features, labels, train, generators(1), 2)
    with pytest.raises(DataError, match="at least 2 classes"):
        probe.fit_probes(features, torch.zeros_like(labels), train, generators(1), 3)
    with pytest.raises(ValueError, match="2 generators for 1 splits"):
        probe.fit_probes(features, labels, train, generators(2), 3)
    with pytest.raises(ValueError, match="11 features but 12 labels"):
        probe.fit_probes(features[:11], labels, train, generators(1), 3)
