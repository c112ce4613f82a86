"""From the clients' updates to one global update: a rule weighs the clients, their weighted sum is the update.

A rule sees the inner products of the updates and whatever else it asks for, and returns one row of weights per segment,
(segments, K), each of sum 1. FedAvg's rows are all alike; FedGaLA's differ when the unit of global alignment is the
layer or the tensor. Statistics take the weights of the layer they belong to.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedgala.alignment import agreement_weights
from fedgala.parameters import BLOCK, Layout


@dataclass(frozen=True)
class Mixing:
    """The numbers of an aggregation rule."""

    iterations: int = 3
    gamma: float = 1.0
    unit: str = "model"
    pace: float = 0.2  # how far FedDG-GA moves a weight in this round


@dataclass(frozen=True)
class Evidence:
    """What a rule may weigh K clients by."""

    products: Tensor  # (segments, K, K) inner products of their updates
    shares: Tensor  # (K,) each client's share of the samples
    along: Tensor | None = None  # (segments, K) inner products of the updates with the global weights, if asked for
    lengths: Tensor | None = None  # (segments,) squared length of the global weights, if asked for
    gaps: Tensor | None = None  # (K,) loss of the global model minus that of the client's own last one; NaN if unknown
    before: Tensor | None = None  # (K,) the clients' weights of last time, NaN for who had none


def fedavg(evidence: Evidence, layout: Layout, mixing: Mixing) -> Tensor:
    """Every client by its share of the samples."""
    return evidence.shares.expand(len(layout.segments), -1)


def agreement(evidence: Evidence, layout: Layout, mixing: Mixing) -> Tensor:
    """FedGaLA's global alignment: clients whose updates agree with the common direction count more."""
    index, count = layout.units(mixing.unit)
    products, shares = evidence.products, evidence.shares
    per_unit = products.new_zeros(count, *products.shape[1:]).index_add_(0, index, products)
    return agreement_weights(per_unit, shares, mixing.iterations, mixing.gamma)[index].to(shares.dtype)


def angular(evidence: Evidence, layout: Layout, mixing: Mixing) -> Tensor:
    """L-DAWA (Rehman et al., ICCV 2023): a client's layer counts by its cosine with the last global layer.

    The published sum is of scaled models; here the cosines, times the shares of samples, are made to sum to 1, so that
    a model does not shrink. With w the global layer, cos(w + u, w) = (|w|^2 + <u, w>) / (|w| |w + u|).
    """
    assert evidence.along is not None and evidence.lengths is not None
    index, count = layout.units("layer")

    def per_layer(values: Tensor) -> Tensor:
        return values.new_zeros(count, *values.shape[1:]).index_add_(0, index, values)

    length, along = per_layer(evidence.lengths)[:, None], per_layer(evidence.along)
    own = length + 2 * along + per_layer(evidence.products.diagonal(dim1=1, dim2=2))
    norms = (length * own.clamp(min=0)).sqrt()
    cosines = torch.where(norms > 0, (length + along) / torch.where(norms > 0, norms, 1.0), 0.0).clamp(0, 1)
    weights = cosines * evidence.shares
    total = weights.sum(1, keepdim=True)
    weights = torch.where(total > 0, weights / torch.where(total > 0, total, 1.0), evidence.shares.to(weights))
    return weights[index].to(evidence.shares.dtype)


def by_gap(evidence: Evidence, layout: Layout, mixing: Mixing) -> Tensor:
    """FedDG-GA (Zhang et al., CVPR 2023): who loses most from the global model counts more than last time.

    a_k += pace gap_k / max |gap|, clipped to [0, 1] and made to sum to 1. Clients begin with equal weights.
    """
    assert evidence.gaps is not None and evidence.before is not None
    count = len(evidence.shares)
    before = evidence.before.nan_to_num(1 / count)
    gaps = evidence.gaps.nan_to_num(0.0)
    largest = gaps.abs().max()
    weights = (before + mixing.pace * gaps / torch.where(largest > 0, largest, 1.0)).clamp(0, 1)
    weights = torch.where(weights.sum() > 0, weights / weights.sum(), 1 / count)
    return weights.to(evidence.shares.dtype).expand(len(layout.segments), -1)


@dataclass(frozen=True)
class Rule:
    """How clients are weighed, and what must be known for it beyond inner products and shares."""

    weigh: Callable[[Evidence, Layout, Mixing], Tensor]
    sees_weights: bool = False  # `along` and `lengths`
    compares_losses: bool = False  # `gaps`; such a rule remembers its weights


RULES: dict[str, Rule] = {
    "fedavg": Rule(fedavg),
    "agreement": Rule(agreement),
    "ldawa": Rule(angular, sees_weights=True),
    "feddgga": Rule(by_gap, compares_losses=True),
}


def weighted_sum(vectors: Sequence[Tensor], weights: Tensor, layout: Layout) -> Tensor:
    """The sum of `vectors` with weights (segments, K), in the order given: the same order gives the same bits."""
    total = layout.zeros()
    for vector, column in zip(vectors, weights.T, strict=True):
        total.view(-1, BLOCK).addcmul_(vector.view(-1, BLOCK), layout.spread(column.to(total.dtype)))
    return total


def statistics_weights(weights: Tensor, layout: Layout, statistics: Layout) -> Tensor:
    """(statistics' segments, K) the mean weights of the tensors in the layer that each statistic belongs to."""
    rows = {
        name: weights[[i for i, segment in enumerate(layout.segments) if segment.layer == name]].mean(0)
        for name in {segment.layer for segment in statistics.segments}
        if any(segment.layer == name for segment in layout.segments)
    }
    overall = weights.mean(0)  # a norm without gain and shift has no tensor of its own
    found = [rows.get(segment.layer, overall) for segment in statistics.segments]
    return torch.stack(found) if found else weights[:0]
