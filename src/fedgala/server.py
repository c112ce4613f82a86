"""The server's side of a round: reject what is not finite, weigh, sum, step (Algorithm 1, lines 4-13)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedgala import seeds
from fedgala.aggregation import RULES, Evidence, Mixing, Rule, statistics_weights, weighted_sum
from fedgala.alignment import gram
from fedgala.config import ServerConfig
from fedgala.errors import TrainingError
from fedgala.messages import ClientUpdate, ServerState
from fedgala.parameters import Layout


@dataclass(frozen=True)
class Aggregate:
    """How a round's updates were combined, for the records."""

    weights: dict[str, float]  # each client's share, averaged over the units that have weights of their own
    rejected: tuple[str, ...]  # clients whose update was not finite
    cosines: Tensor  # (K, K) between the updates of the clients in `weights`, in that order


def participants(clients: Sequence[str], share: float, seed: int, round: int) -> list[str]:
    """The clients of a round, in the order of their names: ``share`` of all, at least one."""
    ordered = sorted(clients)
    count = max(1, math.floor(share * len(ordered) + 0.5))
    chosen = torch.randperm(len(ordered), generator=seeds.generator(seed, "participants", round))[:count]
    return [ordered[index] for index in sorted(chosen.tolist())]


def server_step(
    state: ServerState,
    updates: Sequence[ClientUpdate],
    config: ServerConfig,
    layout: Layout,
    statistics: Layout,
    progress: float = 0.0,
) -> tuple[ServerState, Aggregate]:
    """The next global model from the clients' updates; `progress` is the share of all rounds that are done.

    Updates are taken in the order of the clients' names: arrival order can't change a bit of the result.

    Raises:
        TrainingError: no update is finite.
    """
    ordered = sorted(updates, key=lambda update: update.client)
    good = [u for u in ordered if bool(u.update.isfinite().all()) and bool(u.statistics.isfinite().all())]
    names = [u.client for u in good]
    rejected = tuple(u.client for u in ordered if u.client not in names)
    if not good:
        raise TrainingError(f"round {state.round + 1}: no client sent a finite update ({', '.join(rejected)})")
    rule, vectors = RULES[config.rule], [u.update for u in good]
    mixing = Mixing(config.iterations, config.gamma, config.unit, config.pace * (1 - progress))
    evidence = gather(state, good, rule, layout)
    weights = rule.weigh(evidence, layout, mixing)
    total = weighted_sum(vectors, weights, layout)
    per_statistic = statistics_weights(weights, layout, statistics)
    averaged = weighted_sum([u.statistics for u in good], per_statistic, statistics)
    shares = dict(zip(names, weights.mean(0).tolist(), strict=True))
    kept = {**state.shares, **shares} if rule.compares_losses else {}
    moved = state.weights + total
    # not `total`, which is off by a rounding: a site that keeps the last global model must find the same reference
    new = ServerState(state.round + 1, moved, averaged, moved - state.weights, kept)
    return new, Aggregate(shares, rejected, cosines(evidence.products.sum(0)))


def gather(state: ServerState, updates: Sequence[ClientUpdate], rule: Rule, layout: Layout) -> Evidence:
    """What the rule weighs the clients by, and no more than it asks for."""
    vectors, device = [u.update for u in updates], layout.device
    samples = torch.tensor([float(u.num_samples) for u in updates], device=device)
    along = lengths = gaps = before = None
    if rule.sees_weights:
        along = torch.stack([layout.sums(u * state.weights) for u in vectors], 1).double()
        lengths = layout.sums(state.weights * state.weights).double()
    if rule.compares_losses:
        gaps = torch.tensor([u.metrics.get("gap", math.nan) for u in updates], device=device)
        before = torch.tensor([state.shares.get(u.client, math.nan) for u in updates], device=device)
    return Evidence(gram(vectors, layout), samples / samples.sum(), along, lengths, gaps, before)


def cosines(products: Tensor) -> Tensor:
    """(K, K) the cosines between vectors from their inner products; 0 where one is zero."""
    norms = products.diagonal().sqrt()
    scale = norms[:, None] * norms
    return torch.where(scale > 0, products / torch.where(scale > 0, scale, 1.0), 0.0)
