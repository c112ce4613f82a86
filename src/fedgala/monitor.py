"""Monitors of a representation while it is trained: is it collapsing, and does it know the classes, without a probe.

Three need no labels: `alignment` and `uniformity` (Wang and Isola, ICML 2020) and `effective_rank` (Roy and Vetterli,
EUSIPCO 2007). `knn_accuracy` (Wu et al., CVPR 2018) needs labels but trains nothing. Each gives a 0-dimensional tensor
on the features' device and is defined for collapsed features (all equal or all zero), which is what it is there to
show. Features that are not finite give NaN: a monitor reports, it does not stop the run.

Cosines take features at unit length; a zero vector stays zero, at distance 1 from every unit vector.
"""

import torch
from torch import Tensor
from torch.nn import functional

from fedgala.errors import DataError

_BLOCK = 1 << 24  # entries of one block of a similarity matrix: 64 MiB in float32
_COSINE_STEPS = 1 << 20  # per unit of cosine: equal features tie exactly, in whatever order a product was summed
_RESOLUTION = 1e-14  # of the features' energy: the square of about one rounding of float32


def alignment(first: Tensor, second: Tensor) -> Tensor:
    """Mean squared distance of positive pairs at unit length, ``E |z1 - z2|^2`` (alpha = 2), for two (N, F).

    0 where views agree, 2 where they are orthogonal, 4 where opposed. Collapsed features give 0, so read it beside
    `uniformity`.
    """
    if first.shape != second.shape:
        raise ValueError(f"pairs of shapes {tuple(first.shape)} and {tuple(second.shape)}; they must be equal")
    _at_least(1, first)
    return (_unit(first) - _unit(second)).square().sum(1).mean()


def uniformity(features: Tensor) -> Tensor:
    """Log of the mean of ``exp(-2 |zi - zj|^2)`` over the distinct pairs of (N, F) features at unit length (t = 2).

    0 is collapse, the largest value; about -4 is uniform on a sphere of many dimensions; -8, two opposed points, is the
    least there is.
    """
    _at_least(2, features)
    unit = _unit(features)
    square = unit.square().sum(1)
    total = torch.zeros((), dtype=torch.float64, device=unit.device)
    for start, rows in _blocks(unit, len(unit)):
        distance = square[start : start + len(rows), None] + square - 2 * (rows @ unit.T)
        potential = distance.clamp_min_(0).mul_(-2).exp_()
        potential.diagonal(start).zero_()
        total += potential.sum(dtype=torch.float64)
    return (total / (len(unit) * (len(unit) - 1))).log()


def effective_rank(features: Tensor) -> Tensor:
    """Number of directions that (N, F) features spread over: exp of the entropy of their normalised singular values.

    The singular values (not their squares) are those of the features minus their mean, so a constant offset is no
    direction. Between 1 and min(N - 1, F); 0 where all features are equal, and what float32 cannot resolve beside the
    features' own size counts as equal. Computed in float64.
    """
    _at_least(1, features)
    finite = features.isfinite().all()
    values = features.detach().double().nan_to_num(0, 0, 0)
    floor = _RESOLUTION * values.square().sum()
    values = values - values.mean(0)
    gram = values @ values.T if values.shape[0] < values.shape[1] else values.T @ values
    energy = torch.linalg.eigvalsh(gram)
    singular = torch.where(energy > floor, energy, 0).sqrt()
    total = singular.sum()
    share = singular / torch.where(total > 0, total, 1)
    rank = (-torch.xlogy(share, share).sum()).exp() * (total > 0)
    return torch.where(finite, rank, torch.nan)


def knn_accuracy(
    train_features: Tensor,
    train_labels: Tensor,
    test_features: Tensor,
    test_labels: Tensor,
    k: int = 20,
    temperature: float = 0.07,
) -> Tensor:
    """Share, 0 to 1, of test images whose nearest train images vote for their class, with weights ``exp(cosine / T)``.

    Features are (N, F), labels int64 (N,). Neighbours that tie with the k-th all vote; of classes that tie the lowest
    wins; with fewer than k train images all vote. So collapsed features score the share of the largest train class.
    """
    _at_least(1, train_features)
    _at_least(1, test_features)
    return _knn(train_features, train_labels, test_features, test_labels, k, temperature)


def knn_accuracy_leave_one_out(features: Tensor, labels: Tensor, k: int = 20, temperature: float = 0.07) -> Tensor:
    """`knn_accuracy` of one set against itself, where no image votes for itself.

    Collapsed features score the share of the largest class if it leads by two, and 0 where all classes are equally
    large: the image left out makes its own class the smaller one.
    """
    _at_least(2, features)
    return _knn(features, labels, features, labels, k, temperature, leave_one_out=True)


def _knn(
    bank: Tensor,
    classes: Tensor,
    queries: Tensor,
    truth: Tensor,
    k: int,
    temperature: float,
    leave_one_out: bool = False,
) -> Tensor:
    """Queries in blocks against the whole bank, so that memory is bounded."""
    if k < 1 or temperature <= 0:
        raise ValueError(f"k is {k} and temperature {temperature}; k must be at least 1 and temperature above 0")
    k = min(k, len(bank))
    unit = _unit(bank)
    ballots = functional.one_hot(classes).to(unit)
    hits = torch.zeros((), dtype=torch.int64, device=unit.device)
    for start, rows in _blocks(_unit(queries).to(unit), len(unit)):
        cosine = (rows @ unit.T).mul_(_COSINE_STEPS).round_().div_(_COSINE_STEPS)
        if leave_one_out:
            cosine.diagonal(start).fill_(-torch.inf)
        nearest = cosine.topk(k, dim=1).values
        weight = ((cosine - nearest[:, :1]) / temperature).exp_() * (cosine >= nearest[:, -1:])
        hits += ((weight @ ballots).argmax(1) == truth[start : start + len(rows)]).sum()
    finite = bank.isfinite().all() & queries.isfinite().all()
    return torch.where(finite, hits / len(queries), torch.nan)


def _unit(features: Tensor) -> Tensor:
    """Rows at unit length, zero rows as they are; dividing by the largest entry first keeps squares in range."""
    features = features.detach() if features.dtype == torch.float64 else features.detach().float()
    largest = features.abs().amax(1, keepdim=True)
    return functional.normalize(features / torch.where(largest == 0, 1, largest), dim=1)


def _blocks(rows: Tensor, columns: int) -> list[tuple[int, Tensor]]:
    """Blocks of `rows` with the index of their first, small enough for a matrix of `columns` columns."""
    size = max(1, _BLOCK // columns)
    return [(start, rows[start : start + size]) for start in range(0, len(rows), size)]


def _at_least(count: int, features: Tensor) -> None:
    if len(features) < count:
        raise DataError(f"a monitor needs the features of at least {count} image(s), got {len(features)}")
