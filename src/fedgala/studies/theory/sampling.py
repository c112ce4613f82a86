"""Monte Carlo: what samples of the setting say about the formulae, each estimate with its standard error."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.distributions import MultivariateNormal

from fedgala.studies.theory.formulas import Domains, PairGradient

Sampler = Callable[[int, Domains, Generator], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Estimate:
    """A mean over independent samples."""

    value: float
    standard_error: float

    @classmethod
    def of(cls, values: Tensor) -> "Estimate":
        """The mean of (N,) independent values."""
        return cls(float(values.mean()), float(values.std()) / math.sqrt(len(values)))


def normal(shape: tuple[int, ...], generator: Generator) -> Tensor:
    """Float64 standard normal numbers."""
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def draw(shape: tuple[int, ...], domains: Domains, generator: Generator) -> tuple[Tensor, Tensor]:
    """(..., F) corresponding samples of both domains."""
    first, own = normal(shape, generator), normal(shape, generator)
    second = domains.correlation * first + (1 - domains.correlation.square()).sqrt() * own
    return domains.deviation * first, domains.deviation * second


def positives(first: PairGradient, second: PairGradient) -> Sampler:
    """Gradients of a positive pair of either client."""

    def sample(count: int, domains: Domains, generator: Generator) -> tuple[Tensor, Tensor]:
        x, y = draw((count, len(domains.correlation)), domains, generator)
        return first(x), second(y)

    return sample


def negatives(weights: Tensor, num_negatives: int) -> Sampler:
    """Gradients of an anchor against `num_negatives` other samples of its own client, averaged over these."""

    def gradient(x: Tensor) -> Tensor:
        difference = x[:, :1] - x[:, 1:]
        return (torch.sigmoid(difference @ weights)[..., None] * difference).mean(1)

    def sample(count: int, domains: Domains, generator: Generator) -> tuple[Tensor, Tensor]:
        x, y = draw((count, 1 + num_negatives, len(weights)), domains, generator)
        return gradient(x), gradient(y)

    return sample


def batches(weights: Tensor, size: int) -> Sampler:
    """Gradients of a batch in which each sample is an anchor against all others, averaged over the ordered pairs."""

    def gradient(x: Tensor) -> Tensor:
        outputs = x @ weights
        activation = torch.sigmoid(outputs[:, :, None] - outputs[:, None])  # (N, size, size), of x_a - x_b
        share = activation.sum(2) - activation.sum(1)  # of x_a in the sum over all ordered pairs
        return (share[..., None] * x).sum(1) / (size * (size - 1))

    def sample(count: int, domains: Domains, generator: Generator) -> tuple[Tensor, Tensor]:
        x, y = draw((count, size, len(weights)), domains, generator)
        return gradient(x), gradient(y)

    return sample


def trace_covariance(first: Tensor, second: Tensor) -> Estimate:
    """The sum over the dimensions m of Cov(g_i(m), g_j(m)), from samples (N, F)."""
    return Estimate.of(((first - first.mean(0)) * (second - second.mean(0))).sum(1))


def trace_difference(first: Tensor, second: Tensor) -> Estimate:
    """The trace of Var(g_i - g_j)."""
    return trace_covariance(first - second, first - second)


def information(domains: Domains, count: int, generator: Generator) -> Estimate:
    """Mutual information as the mean log ratio of the joint density to both others; knows nothing of Lemma 1."""
    x, y = draw((count, len(domains.correlation)), domains, generator)
    own = domains.deviation**2 * torch.eye(x.shape[1], dtype=torch.float64)
    cross = torch.diag(domains.covariance)
    joint = torch.cat([torch.cat([own, cross], 1), torch.cat([cross, own], 1)])
    return Estimate.of(_log_density(torch.cat([x, y], 1), joint) - _log_density(x, own) - _log_density(y, own))


def _log_density(x: Tensor, covariance: Tensor) -> Tensor:
    density: Tensor = MultivariateNormal(x.new_zeros(x.shape[1]), covariance).log_prob(x)  # type: ignore[no-untyped-call]
    return density


def gradient_sets(
    count: int, size: int, correlation: float, spread: float, num_features: int, generator: Generator
) -> tuple[Tensor, Tensor]:
    """Two sets (n, size, F) of paired gradients that fulfil the assumptions of Proposition 1; n is at most `count`.

    Each gradient is a common direction of length 1 plus normal noise whose length is about `spread`, with `correlation`
    between the partners of a pair. The pair with the gradient that is not aligned comes last.
    """
    mean = torch.zeros(num_features, dtype=torch.float64)
    mean[0] = 1
    domains = Domains(torch.full((num_features,), correlation, dtype=torch.float64), spread / math.sqrt(num_features))
    first, second = (mean + noise for noise in draw((count, size, num_features), domains, generator))
    order = aligned(first, second)[1].long().argsort(dim=1, descending=True, stable=True)[..., None]
    first, second = (vectors.gather(1, order.expand_as(vectors)) for vectors in (first, second))
    kept = fulfils(first, second)
    return first[kept], second[kept]


def aligned(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """(n, K) for either set, whether each gradient has a positive cosine with the mean of both sets (n, K, F)."""
    common = (first.mean(1, keepdim=True) + second.mean(1, keepdim=True)) / 2
    return (first * common).sum(-1) > 0, (second * common).sum(-1) > 0


def fulfils(first: Tensor, second: Tensor) -> Tensor:
    """(n,) whether the last gradient of the second set, and no other, is not aligned: Proposition 1's assumption."""
    in_first, in_second = aligned(first, second)
    return in_first.all(1) & in_second[:, :-1].all(1) & ~in_second[:, -1]


def with_strangers(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """The same sets, but the partner of the gradient that is not aligned comes from another draw."""
    first = torch.cat([first[:, :-1], first[:, -1:].roll(1, 0)], 1)
    kept = fulfils(first, second)
    return first[kept], second[kept]
