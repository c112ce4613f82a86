"""Differential privacy of whole clients: each clips what it sends, the server adds Gaussian noise to their sum.

Two data sets are neighbours when they differ in all pictures of one client; who takes part, and when, is public. What
is released is every global model, for the sites see all of them. The server is trusted: it sees clipped updates as they
are. Everything else follows from how far one client can move the sum, `sensitivity`, and from the noise being a
multiple of that: rounds compose to one Gaussian mechanism, whose (epsilon, delta) is known exactly (Balle and Wang,
2018, Theorem 8; Dong, Roth and Su, 2022, Corollary 2). No credit is taken for sampling clients: that draw follows from
the run's seed, which every site knows.
"""

import math
from dataclasses import replace
from hashlib import blake2b, shake_256

import torch
from torch import Tensor

from fedgala.messages import Broadcast, ClientUpdate, ServerState
from fedgala.parameters import Layout

RELEASES = 2  # of a round: the weights, and the norms' statistics
VARIANCE = "running_var"  # torch's name of the statistics that noise must not make negative
MARGIN = 1 - 1e-6  # what is clipped ends a hair below the bound, whatever rounding does


def clipped(update: ClientUpdate, sent: Broadcast, clip: float, statistics_clip: float) -> ClientUpdate:
    """What a client sends under privacy.

    An update no longer than `clip`, and statistics no further than `statistics_clip` from those it was `sent`. It
    counts as one sample, so that FedAvg weighs all alike: the number of a client's pictures is its own affair.
    """
    factor = _factor(update.update, clip)
    moved = update.statistics - sent.statistics
    return replace(
        update,
        update=update.update * factor,
        statistics=sent.statistics + moved * _factor(moved, statistics_clip),
        num_samples=1,
        metrics={**update.metrics, "clip_factor": factor},
    )


def _factor(vector: Tensor, bound: float) -> float:
    length = float(torch.linalg.vector_norm(vector, dtype=torch.float64))
    return 1.0 if length <= bound or not math.isfinite(length) else bound / length * MARGIN


def sensitivity(clients: int, agreement: float) -> float:
    """How far the sum of clipped updates can move when one client's pictures change, in units of the clip.

    A mean over K clients moves by 2/K at most: one update of length 1 becomes its opposite. Weights by agreement depend
    on everybody's pictures; then all that is sure is that the sum, a convex combination, stays in the ball of radius 1,
    and moves by no more than 2. `agreement` is their share of the mixture, gamma.
    """
    return 2 * ((1 - agreement) / clients + agreement)


def noised(
    before: ServerState,
    after: ServerState,
    layouts: tuple[Layout, Layout],
    deviations: tuple[float, float],
    key: bytes,
) -> ServerState:
    """The state `after` a round with noise on weights and statistics, and the reference that sites will see.

    The noise is a function of the secret `key` and of what it hides: the same round played again gets the same noise,
    but noise is never reused on another sum, whose difference to the first would show the clients bare.
    """
    seed = blake2b(key=key, digest_size=64)
    for vector in (after.weights, after.statistics):
        seed.update(vector.cpu().contiguous().numpy().data)
    vectors = zip((after.weights, after.statistics), layouts, deviations, strict=True)
    weights, statistics = (_with_noise(v, layout, scale, seed.digest()) for v, layout, scale in vectors)
    for segment in layouts[1].segments:
        if segment.name.rpartition(".")[2] == VARIANCE:
            least = layouts[1].view(before.statistics, segment) / 2
            layouts[1].view(statistics, segment).clamp_(min=least)
    return replace(after, weights=weights, statistics=statistics, reference=weights - before.weights)


def _with_noise(vector: Tensor, layout: Layout, deviation: float, seed: bytes) -> Tensor:
    found = vector.clone()
    for segment in layout.segments:
        place = slice(segment.offset, segment.offset + segment.numel)
        noise = gaussian(segment.numel, seed + segment.name.encode()).to(vector.device)
        found[place] = (vector[place].double() + deviation * noise).to(vector.dtype)
    return found


def gaussian(count: int, seed: bytes) -> Tensor:
    """(count,) standard normal numbers in float64 that nobody can tell from random without `seed`.

    torch's generators are not for secrets (the CPU's heeds 32 bits of its seed): bits come from SHAKE-256.
    """
    bits = torch.frombuffer(bytearray(shake_256(seed).digest(8 * max(1, count))), dtype=torch.int64)[:count]
    middle = ((bits >> 12) & (2**52 - 1)).double() + 0.5  # of one of 2^52 equal pieces of (0, 1)
    numbers: Tensor = torch.special.ndtri(middle / 2**52)
    return numbers


def delta_of(epsilon: float, mu: float) -> float:
    """The delta of a Gaussian mechanism that separates neighbours by `mu` standard deviations."""
    first, second = (torch.tensor(x, dtype=torch.float64) for x in (mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu))
    logs = torch.special.log_ndtr(first), epsilon + torch.special.log_ndtr(second)
    return max(0.0, float(logs[0].exp() - logs[1].exp()))


def epsilon_of(noise: float, rounds: int, delta: float) -> float:
    """The epsilon at `delta` of a client that took part in `rounds` rounds.

    Args:
        noise: standard deviation of the noise over the sensitivity, above 0.
        rounds: rounds in which the client took part; each releases weights and statistics.
        delta: probability with which the guarantee may fail.
    """
    mu = math.sqrt(RELEASES * rounds) / noise
    low, high = 0.0, 1.0
    while delta_of(high, mu) > delta:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_of(middle, mu) > delta else (low, middle)
    return high
