"""The paper's theory as functions on float64 tensors: what it derives, and the exact values beside it.

The setting (Assumption 1): a sample has F features, x ~ N(0, s^2 I); two domains are tied by Cov(x_i^f, x_j^f) =
rho_f s^2 and by nothing else. An encoder with weights w sees a pair through the difference d of its members and says
sigmoid(w.d); the cross-entropy with target y (1 for a positive pair, 0 for a negative) has the gradient

    g(x) = (sigmoid(w.d) - y) d,   d = M x - b,   M = I - A,   b = B  for the augmentation A x + B.

The paper's covariance of g_i and g_j is of *first order*: J_i diag(rho s^2) J_j^T with the Jacobians at the mean
(Lemma 2). The *exact* one needs no more than an integral over (w.d_i, w.d_j), which are jointly normal.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

import torch
from torch import Tensor

REACH, NODES = 9.0, 161  # standard deviations and points of the trapezoid rule: to spread 8 its error is below 1e-9


@dataclass(frozen=True)
class Domains:
    """Two domains: how their features are tied, and how far they spread."""

    correlation: Tensor  # (F,) rho_f, between -1 and 1
    deviation: float = 1.0  # s, the same for every feature of both; the paper has 1

    @property
    def covariance(self) -> Tensor:
        """(F,) Cov(x_i^f, x_j^f)."""
        return self.correlation * self.deviation**2


@dataclass(frozen=True)
class PairGradient:
    """The gradient of one pair's loss with respect to the weights, as a function of the sample."""

    weights: Tensor  # (F,) w
    mix: Tensor  # (F, F) M
    shift: Tensor  # (F,) b
    target: float  # y

    def __call__(self, x: Tensor) -> Tensor:
        """(..., F) the gradients at samples (..., F)."""
        difference = x @ self.mix.T - self.shift
        return (torch.sigmoid(difference @ self.weights) - self.target)[..., None] * difference

    def spread(self, deviation: float = 1.0) -> float:
        """The standard deviation of the pre-activation w.d, in which sigmoid is or is not nearly linear."""
        return deviation * float((self.weights @ self.mix).norm())


def positive(weights: Tensor, linear: Tensor, shift: Tensor) -> PairGradient:
    """A sample and its augmentation ``linear @ x + shift``."""
    return PairGradient(weights, torch.eye(len(weights), dtype=weights.dtype) - linear, shift, 1.0)


def negative(weights: Tensor, target: float = 0.0) -> PairGradient:
    """Two samples of a client: their difference is normal with twice the variance, so it stands for sqrt(2) x.

    With target 1/2 it is the mean over both orders: sigmoid(t) d and sigmoid(-t) (-d) sum to (2 sigmoid(t) - 1) d.
    """
    mix = math.sqrt(2) * torch.eye(len(weights), dtype=weights.dtype)
    return PairGradient(weights, mix, torch.zeros_like(weights), target)


def mutual_information(correlation: Tensor) -> float:
    """Lemma 1, in nats: -1/2 sum_f log(1 - rho_f^2)."""
    return float(-0.5 * torch.log1p(-correlation.square()).sum())


def jacobian(gradient: PairGradient) -> Tensor:
    """(F, F) dg/dx at x = 0: (sigmoid'(t) d w^T + (sigmoid(t) - y) I) M with d = -b, t = -w.b."""
    difference = -gradient.shift
    activation = torch.sigmoid(difference @ gradient.weights)
    slope = activation * (1 - activation)
    identity = torch.eye(len(difference), dtype=difference.dtype)
    per_difference = slope * torch.outer(difference, gradient.weights) + (activation - gradient.target) * identity
    return per_difference @ gradient.mix


def printed_slope(weight: float, linear: float, shift: float) -> float:
    """The paper's dg+/dx at 0 for one feature, to the letter: sigmoid'(-wB) (-B) + sigmoid(-wB) (1 - A)."""
    activation = 1 / (1 + math.exp(weight * shift))
    return activation * (1 - activation) * -shift + activation * (1 - linear)


def first_order(first: PairGradient, second: PairGradient, domains: Domains) -> Tensor:
    """(F, F) Lemma 2: Cov(g_i, g_j)_mn = sum_f Cov(x_i^f, x_j^f) dg_i(m)/dx^f dg_j(n)/dx^f at the means."""
    return (jacobian(first) * domains.covariance) @ jacobian(second).T


def exact(first: PairGradient, second: PairGradient, domains: Domains) -> Tensor:
    """(F, F) Cov(g_i, g_j) by quadrature over the pre-activations t = w.d of both clients.

    It is E[h_i h_j E[d_i d_j^T | t_i, t_j]] - E[g_i] E[g_j]^T with h = sigmoid(t) - y: given both pre-activations, the
    differences are normal with known mean and covariance.
    """
    cross = (first.mix * domains.covariance) @ second.mix.T  # Cov(d_i, d_j)
    own = [domains.deviation**2 * g.mix @ g.mix.T for g in (first, second)]
    w, v = first.weights, second.weights
    to_first = torch.stack([own[0] @ w, cross @ v], 1)  # (F, 2) Cov(d_i, (t_i, t_j))
    to_second = torch.stack([cross.T @ w, own[1] @ v], 1)
    joint = torch.stack([w @ to_first, v @ to_second])
    joint = (joint + joint.T) / 2
    inverse = torch.linalg.pinv(joint, hermitian=True)
    nodes, probability = _normal_nodes(joint)  # (N, 2) deviations of (t_i, t_j) from their means
    heights = [torch.sigmoid(nodes[:, k] - g.weights @ g.shift) - g.target for k, g in enumerate((first, second))]
    known = [nodes @ (c @ inverse).T - g.shift for g, c in ((first, to_first), (second, to_second))]  # E[d | t_i, t_j]
    scaled = [height[:, None] * values for height, values in zip(heights, known, strict=True)]
    rest = cross - to_first @ inverse @ to_second.T
    product: Tensor = (probability * scaled[0].T) @ scaled[1] + (probability @ (heights[0] * heights[1])) * rest
    return product - torch.outer(probability @ scaled[0], probability @ scaled[1])


def _normal_nodes(covariance: Tensor) -> tuple[Tensor, Tensor]:
    """(N, 2) nodes and (N,) probabilities of a normal of two dimensions, which may be degenerate."""
    line = torch.linspace(-REACH, REACH, NODES, dtype=torch.float64)
    density = torch.exp(-line.square() / 2)
    density = density / density.sum()
    energy, directions = torch.linalg.eigh(covariance)
    root = directions * energy.clamp(min=0).sqrt()
    return torch.cartesian_prod(line, line) @ root.T, torch.outer(density, density).flatten()


Rule = Callable[[PairGradient, PairGradient, Domains], Tensor]


def over_negatives(rule: Rule, gradient: PairGradient, domains: Domains, count: int) -> Tensor:
    """(F, F) the covariance of an anchor's gradient, a mean over `count` negatives; `rule` is `exact` or `first_order`.

    Of two negatives drawn, 1 in `count` is the same sample; the others share only the anchor, half of the correlation.
    """
    same, shared = (rule(gradient, gradient, halved(domains, part)) for part in (1.0, 0.5))
    return same / count + (1 - 1 / count) * shared


def over_batch(rule: Rule, gradient: PairGradient, domains: Domains, size: int) -> Tensor:
    """(F, F) the covariance of the mean over all pairs of a batch of `size`, each in both orders (target 1/2)."""
    same, shared = (rule(gradient, gradient, halved(domains, part)) for part in (1.0, 0.5))
    return (same + 2 * (size - 2) * shared) / (size * (size - 1) / 2)


def halved(domains: Domains, part: float) -> Domains:
    """The same domains with `part` of their correlation."""
    return replace(domains, correlation=part * domains.correlation)


def difference_variance(rule: Rule, first: PairGradient, second: PairGradient, domains: Domains) -> Tensor:
    """(F, F) Corollary 1: Var(g_i - g_j) = Var(g_i) + Var(g_j) - Cov(g_i, g_j) - Cov(g_j, g_i)."""
    itself = replace(domains, correlation=torch.ones_like(domains.correlation))
    cross = rule(first, second, domains)
    return rule(first, first, itself) + rule(second, second, itself) - cross - cross.T


def set_covariance(first: Tensor, second: Tensor) -> Tensor:
    """(..., F, F) the covariance of two paired sets (..., K, F) of gradients, divided by K - 1."""
    centred = [vectors - vectors.mean(-2, keepdim=True) for vectors in (first, second)]
    return centred[0].mT @ centred[1] / (first.shape[-2] - 1)


def removal_term(first: Tensor, second: Tensor) -> Tensor:
    """(..., F, F) the last pair's part in the covariance of two sets (..., K, F).

    Proposition 1's identity: Cov of K = (K - 2) / (K - 1) Cov of the first K - 1, plus this,
    (g_iK - mean of the other g_i) (g_jK - mean of the other g_j)^T / K.
    """
    outer = [vectors[..., -1, :] - vectors[..., :-1, :].mean(-2) for vectors in (first, second)]
    return outer[0][..., :, None] * outer[1][..., None, :] / first.shape[-2]


def agreement_gain(first: Tensor, second: Tensor) -> Tensor:
    """(...) how much <mean of g_j, mean of both sets> gains when the last gradient of the second set is left out.

    It is <mean of the other g_j - g_jK, mean of both> / K, so it is positive wherever Proposition 1's assumption holds.
    """
    common = (first.mean(-2) + second.mean(-2)) / 2
    return ((second[..., :-1, :].mean(-2) - second.mean(-2)) * common).sum(-1)


def sigmoid_coefficients(count: int, printed: bool = False) -> list[Fraction]:
    """The coefficients of x, x^3, x^5, ... in sigmoid(x) - 1/2: (2^(2n+2) - 1) B_(2n+2) / (2n+2)!.

    Printed in the paper: (-1)^n (2^(2n+1) - 1) B_(2n+2) / (2n+2)!.
    """
    bernoulli = [Fraction(1)]
    for n in range(1, 2 * count + 1):
        bernoulli.append(-sum((math.comb(n + 1, k) * bernoulli[k] for k in range(n)), Fraction(0)) / (n + 1))
    factor = [(-1) ** n * (2 ** (2 * n + 1) - 1) if printed else 2 ** (2 * n + 2) - 1 for n in range(count)]
    return [factor[n] * bernoulli[2 * n + 2] / math.factorial(2 * n + 2) for n in range(count)]


def expected_slope(spread: float) -> float:
    """E[sigmoid'(t)] for t ~ N(0, spread^2)."""
    line = torch.linspace(-REACH, REACH, NODES, dtype=torch.float64)
    density = torch.exp(-line.square() / 2)
    activation = torch.sigmoid(spread * line)
    return float((density * activation * (1 - activation)).sum() / density.sum())


def expected_slope_series(spread: float, count: int) -> list[float]:
    """Partial sums of E[sigmoid'(t)] term by term, with E[t^(2n)] = (2n - 1)!! spread^(2n), as the proof of Claim 1."""
    total, sums, moment = 0.0, [], 1.0
    for n, coefficient in enumerate(sigmoid_coefficients(count)):
        total += (2 * n + 1) * float(coefficient) * moment
        sums.append(total)
        moment *= (2 * n + 1) * spread**2
    return sums
