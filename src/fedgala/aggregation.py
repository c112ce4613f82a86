"""From the clients' updates to one global update: a rule weighs the clients, their weighted sum is the update.

A rule sees the inner products of the updates, (segments, K, K), and each client's share of the samples, (K,); it
returns one row of weights per segment, (segments, K). FedAvg's rows are all alike; FedGaLA's differ when the unit of
global alignment is the layer or the tensor. Statistics take the weights of the layer they belong to.
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


Rule = Callable[[Tensor, Tensor, Layout, Mixing], Tensor]


def fedavg(products: Tensor, shares: Tensor, layout: Layout, mixing: Mixing) -> Tensor:
    """Every client by its share of the samples."""
    return shares.expand(len(layout.segments), -1)


def agreement(products: Tensor, shares: Tensor, layout: Layout, mixing: Mixing) -> Tensor:
    """FedGaLA's global alignment: clients whose updates agree with the common direction count more."""
    index, count = layout.units(mixing.unit)
    per_unit = products.new_zeros(count, *products.shape[1:]).index_add_(0, index, products)
    return agreement_weights(per_unit, shares, mixing.iterations, mixing.gamma)[index].to(shares.dtype)


RULES: dict[str, Rule] = {"fedavg": fedavg, "agreement": agreement}


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
