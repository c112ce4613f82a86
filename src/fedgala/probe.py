"""Linear probes on frozen features: how well one fully connected layer reads the classes off what the encoder gives.

The paper trains that layer for 100 epochs (Adam, 3e-3) on 10 % or 30 % of the unseen domain and tests it on the rest.
One split says little, so many are trained here, side by side as one batched problem whose gradient is written out; the
plain loop over `nn.Linear` and `torch.optim.Adam` is in the tests, and agrees. Every split has a generator of its own,
on the CPU, so but for rounding its result depends neither on the device nor on the splits beside it.

The paper does not normalise features, and nor does this. Adam moves a weight by at most about the learning rate a step,
and 10 % of a PACS domain is one batch, hence 100 steps in all: features of a small scale are probed by an undertrained
layer. A fair comparison of encoders of different scales (or of encoder and projector) standardises both before.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

from fedgala.errors import DataError, TrainingError

_BETA_MEAN, _BETA_SQUARE, _EPSILON = 0.9, 0.999, 1e-8  # torch.optim.Adam's


@dataclass(frozen=True)
class Splits:
    """S ways to cut one labelled set into images to train on and images to test on; each row ascends."""

    train: Tensor  # int64 (S, n_train)
    test: Tensor  # int64 (S, n_test)


@dataclass(frozen=True)
class Recipe:
    """How a probe is trained; the defaults are the paper's, but for the batch, of which it says nothing."""

    epochs: int = 100
    learning_rate: float = 3e-3
    batch_size: int = 512  # images; an epoch's last, shorter batch counts as a batch


PAPER = Recipe()


@dataclass(frozen=True)
class Probes:
    """S fully connected layers over F features and C classes."""

    weight: Tensor  # (S, C, F)
    bias: Tensor  # (S, C)


@dataclass(frozen=True)
class _Adam:
    """The probes' parameters as one vector, with gradient and moments; all is written in place."""

    value: Tensor  # (S * C * F + S * C,), weights before biases
    gradient: Tensor
    mean: Tensor
    square: Tensor
    step: Tensor  # (), on the device: a captured graph has to count by itself
    probes: Probes  # views of `value`
    slopes: Probes  # views of `gradient`


def make_splits(labels: Tensor, ratio: float, generators: Sequence[Generator], *, stratified: bool = True) -> Splits:
    """Draw one split per generator (on the CPU), with a share `ratio` of the images to train on.

    Stratified: each class gives ``ratio * n_c`` images, rounded half up, but at least one to either side where it has
    two. Otherwise ``int(ratio * N)`` images are drawn from all. Both keep every split the same size.

    Raises:
        DataError: fewer than two classes, or nothing left to train or to test on.
    """
    if not 0 < ratio < 1:
        raise ValueError(f"ratio is {ratio}; it must lie between 0 and 1, both excluded")
    labels = labels.cpu()
    classes = _two_classes(labels)
    pools = [(labels == c).nonzero().squeeze(1) for c in classes] if stratified else [torch.arange(len(labels))]
    counts = [_stratum(ratio, len(pool)) if stratified else int(ratio * len(pool)) for pool in pools]
    if not 0 < sum(counts) < len(labels):
        raise DataError(
            f"{len(labels)} images at ratio {ratio} leave {sum(counts)} to train a probe on and "
            f"{len(labels) - sum(counts)} to test it; both need one: add labelled images or change the ratio"
        )
    train, test = [], []
    for generator in generators:
        drawn = [pool[torch.randperm(len(pool), generator=generator)] for pool in pools]
        train.append(torch.cat([pool[:count] for pool, count in zip(drawn, counts, strict=True)]).sort().values)
        test.append(torch.cat([pool[count:] for pool, count in zip(drawn, counts, strict=True)]).sort().values)
    return Splits(torch.stack(train), torch.stack(test))


def fit_probes(
    features: Tensor,
    labels: Tensor,
    train: Tensor,
    generators: Sequence[Generator],
    num_classes: int,
    recipe: Recipe = PAPER,
) -> Probes:
    """Train probe s on the images ``train[s]`` by cross-entropy and Adam, in batches reshuffled every epoch.

    `features` is (N, F), used as float32 unless it is float64; `labels` int64 (N,); `train` int64 (S, n). Generator s,
    on the CPU, gives probe s `nn.Linear`'s initial values and then one permutation per epoch. The host waits for the
    device before the loop, never within.

    Raises:
        DataError: labels out of range or of fewer than two classes.
        TrainingError: features that are not finite.
    """
    if len(generators) != len(train):
        raise ValueError(f"{len(generators)} generators for {len(train)} splits; each split needs its own")
    _two_classes(labels)
    features, labels = _checked(features, labels, num_classes)
    train = train.to(features.device)
    num_splits, num_train = train.shape
    state = _initial_state(features, num_classes, generators)
    batch = features.new_empty(num_splits, min(recipe.batch_size, num_train), features.shape[1])
    for _ in range(recipe.epochs):
        drawn = torch.stack([torch.randperm(num_train, generator=generator) for generator in generators])
        order = train.gather(1, drawn.to(train.device, non_blocking=True))
        _train_epoch_(state, features, labels, order, batch, recipe.learning_rate)
    return state.probes


def confusion(probes: Probes, features: Tensor, labels: Tensor, test: Tensor) -> Tensor:
    """Count probe s's answers on the images ``test[s]``: int64 (S, C, C), rows the true class, columns the answer."""
    num_splits, num_classes, _ = probes.weight.shape
    features, labels = _checked(features, labels, num_classes)
    logits = torch.addmm(probes.bias.flatten(), features, probes.weight.flatten(0, 1).T)
    test = test.to(features.device)
    answers = logits.view(-1, num_splits, num_classes).argmax(2).T.gather(1, test)
    split = torch.arange(num_splits, device=test.device)[:, None]
    cell = (split * num_classes + labels[test]) * num_classes + answers
    counts = torch.bincount(cell.flatten(), minlength=num_splits * num_classes**2)
    return counts.view(num_splits, num_classes, num_classes)


def accuracy(confusion: Tensor) -> Tensor:
    """The share, 0 to 1, of right answers in each (C, C) table of `confusion`."""
    return confusion.diagonal(dim1=-2, dim2=-1).sum(-1) / confusion.sum((-2, -1))


def linear_probe(
    features: Tensor,
    labels: Tensor,
    splits: Splits,
    generators: Sequence[Generator],
    num_classes: int,
    recipe: Recipe = PAPER,
) -> Tensor:
    """Train and test within one domain, as the paper evaluates; returns `confusion`, (S, C, C)."""
    probes = fit_probes(features, labels, splits.train, generators, num_classes, recipe)
    return confusion(probes, features, labels, splits.test)


def transfer_probe(
    source: tuple[Tensor, Tensor],
    target: tuple[Tensor, Tensor],
    generators: Sequence[Generator],
    num_classes: int,
    recipe: Recipe = PAPER,
) -> Tensor:
    """Train on all of the labelled source, test on all of the unseen target; both are ``(features, labels)``.

    Stricter than `linear_probe`: the layer has to generalise too. Its S probes differ in initial values and batches
    only. Returns `confusion`, (S, C, C).
    """
    train, test = (torch.arange(len(labels)).expand(len(generators), -1) for _, labels in (source, target))
    probes = fit_probes(*source, train, generators, num_classes, recipe)
    return confusion(probes, *target, test)


def _initial_state(features: Tensor, num_classes: int, generators: Sequence[Generator]) -> _Adam:
    bound = 1 / math.sqrt(features.shape[1])
    weights, biases = [], []
    for generator in generators:
        weight = torch.empty(num_classes, features.shape[1])
        weights.append(nn.init.kaiming_uniform_(weight, a=math.sqrt(5), generator=generator).flatten())
        biases.append(torch.empty(num_classes).uniform_(-bound, bound, generator=generator))
    value = torch.cat(weights + biases).to(features)
    gradient, mean, square = (torch.zeros_like(value) for _ in range(3))
    probes, slopes = (_layers(vector, len(generators), num_classes) for vector in (value, gradient))
    return _Adam(value, gradient, mean, square, value.new_zeros(()), probes, slopes)


def _layers(vector: Tensor, num_splits: int, num_classes: int) -> Probes:
    weight, bias = vector.tensor_split([len(vector) - num_splits * num_classes])
    return Probes(weight.view(num_splits, num_classes, -1), bias.view(num_splits, num_classes))


def _train_epoch_(state: _Adam, features: Tensor, labels: Tensor, order: Tensor, batch: Tensor, rate: float) -> None:
    """One epoch over the images `order`, (S, n), in place; static shapes and no host sync, so a CUDA graph can hold it.

    `batch`, (S, B, F), is scratch. Classes stand before images, (S, C, B): on a CPU a softmax over a short last axis
    is some fifteen times slower.
    """
    num_splits, batch_size, num_features = batch.shape
    classes = torch.arange(state.probes.bias.shape[1], device=order.device)[:, None]
    for index in torch.split(order, batch_size, dim=1):
        rows = batch.flatten(0, 1)[: index.numel()]
        torch.index_select(features, 0, index.flatten(), out=rows)
        inputs = rows.view(num_splits, -1, num_features)
        logits = torch.baddbmm(state.probes.bias[:, :, None], state.probes.weight, inputs.transpose(1, 2))
        truth = (labels[index][:, None] == classes).to(logits.dtype)
        residual = logits.softmax(1).sub_(truth).div_(index.shape[1])
        torch.bmm(residual, inputs, out=state.slopes.weight)
        torch.sum(residual, 2, out=state.slopes.bias)
        _adam_(state, rate)


def _adam_(state: _Adam, rate: float) -> None:
    """One step of `torch.optim.Adam`, in place; expm1 keeps 1 - beta^t accurate in float32 while t is small."""
    state.step.add_(1)
    mean_scale, square_scale = (-torch.expm1(state.step * math.log(beta)) for beta in (_BETA_MEAN, _BETA_SQUARE))
    state.mean.lerp_(state.gradient, 1 - _BETA_MEAN)
    state.square.mul_(_BETA_SQUARE).addcmul_(state.gradient, state.gradient, value=1 - _BETA_SQUARE)
    divisor = (state.square / square_scale).sqrt_().add_(_EPSILON).mul_(mean_scale)
    state.value.addcdiv_(state.mean, divisor, value=-rate)


def _stratum(ratio: float, size: int) -> int:
    count = int(ratio * size + 0.5)
    return min(max(count, 1), size - 1) if size >= 2 else count


def _two_classes(labels: Tensor) -> list[int]:
    classes = sorted(set(labels.tolist()))
    if len(classes) < 2:
        raise DataError(
            f"a probe needs images of at least 2 classes; these {len(labels)} are of {len(classes)}: add some of "
            "another, or go without labels, with no folders for classes"
        )
    return classes


def _checked(features: Tensor, labels: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """Features as the probe computes with them, labels beside them on their device."""
    if len(features) != len(labels):
        raise ValueError(f"{len(features)} features but {len(labels)} labels; each image needs both")
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < num_classes:
        found = f"{int(labels.min())} to {int(labels.max())}"
        raise DataError(f"labels run from {found}, but {num_classes} classes allow 0 to {num_classes - 1} only")
    unusable = int((~features.isfinite().all(dim=1)).sum())
    if unusable:
        raise TrainingError(f"features of {unusable} of {len(features)} images are not finite; the encoder diverged")
    features = features.detach()
    return features if features.dtype == torch.float64 else features.float(), labels.to(features.device)
