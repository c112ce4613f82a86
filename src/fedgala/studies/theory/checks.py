"""The sweeps: each statement of the paper at many points, estimated, by its formula, and exactly."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedgala import seeds
from fedgala.studies.theory import formulas, sampling
from fedgala.studies.theory.formulas import Domains, PairGradient, Rule, exact, first_order, mutual_information
from fedgala.studies.theory.rows import Row
from fedgala.studies.theory.sampling import Estimate, Sampler

NUM_FEATURES, NUM_NEGATIVES, BATCH, SET = 8, 15, 16, 8
CORRELATIONS = (-0.99, -0.9, -0.7, -0.5, -0.3, -0.1, 0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
TIED = tuple(rho for rho in CORRELATIONS if rho >= 0)
PROFILES = 40


@dataclass(frozen=True)
class Setting:
    """One draw of what Assumption 1 holds fixed: weights, and the affine augmentation that all clients share."""

    weights: Tensor
    linear: Tensor
    shift: Tensor
    samples: int
    seed: int

    @classmethod
    def of(cls, seed: int, samples: int, num_features: int = NUM_FEATURES) -> "Setting":
        """A zoom by about a half with some mixing and a shift; weights such that the pre-activation spreads by 1."""
        chance = seeds.generator(seed, "theory", "setting")
        weights, shift = (sampling.normal((num_features,), chance) / num_features**0.5 for _ in range(2))
        noise = sampling.normal((num_features, num_features), chance) / num_features**0.5
        linear = 0.5 * torch.eye(num_features, dtype=torch.float64) + 0.2 * noise
        weights = weights / formulas.positive(weights, linear, shift).spread()
        return cls(weights, linear, 0.5 * shift, samples, seed)

    @property
    def positive(self) -> PairGradient:
        """The gradient of a positive pair."""
        return formulas.positive(self.weights, self.linear, self.shift)

    def domains(self, correlation: float, deviation: float = 1.0) -> Domains:
        """Two domains, all features equally tied."""
        return Domains(torch.full_like(self.weights, correlation), deviation)

    def generator(self, *name: int | str) -> torch.Generator:
        """A generator for one point of one sweep."""
        return seeds.generator(self.seed, "theory", *name)


def _where(domains: Domains, **more: float) -> dict[str, float]:
    correlation = {"correlation": float(domains.correlation[0])} if len(set(domains.correlation.tolist())) == 1 else {}
    return {**correlation, "information": mutual_information(domains.correlation), **more}


@dataclass(frozen=True)
class Family:
    """Gradients of two clients: how they are drawn, and what their covariance is by a rule."""

    draw: Sampler
    covariance: Callable[[Rule, Domains], Tensor]
    share: float = 1.0  # of the samples, for samples that are batches

    @classmethod
    def pairs(cls, first: PairGradient, second: PairGradient) -> "Family":
        """A positive pair of either client."""
        return cls(sampling.positives(first, second), lambda rule, domains: rule(first, second, domains))

    @classmethod
    def anchor(cls, weights: Tensor) -> "Family":
        """An anchor against its negatives."""
        one = formulas.negative(weights)
        return cls(
            sampling.negatives(weights, NUM_NEGATIVES),
            lambda rule, domains: formulas.over_negatives(rule, one, domains, NUM_NEGATIVES),
            0.1,
        )

    @classmethod
    def batch(cls, weights: Tensor) -> "Family":
        """Every sample of a batch against all others."""
        one = formulas.negative(weights, target=0.5)
        return cls(
            sampling.batches(weights, BATCH),
            lambda rule, domains: formulas.over_batch(rule, one, domains, BATCH),
            0.1,
        )


Point = tuple[Domains, Mapping[str, float]]


def _traces_of_covariance(
    setting: Setting, statement: str, case: str, family: Family, points: Sequence[Point]
) -> Iterator[Row]:
    """Rows for the trace of Cov(g_i, g_j) at each of `points`."""
    for index, (domains, more) in enumerate(points):
        count, chance = int(setting.samples * family.share), setting.generator(statement, case, index)
        found = sampling.trace_covariance(*family.draw(count, domains, chance))
        values = [float(family.covariance(rule, domains).trace()) for rule in (first_order, exact)]
        yield Row(statement, case, _where(domains, **more), found.value, found.standard_error, *values)


def lemma_1(setting: Setting) -> Iterator[Row]:
    """Mutual information from densities against its formula."""
    for index, rho in enumerate(TIED):
        domains = setting.domains(rho)
        found = sampling.information(domains, setting.samples, setting.generator("lemma 1", index))
        value = mutual_information(domains.correlation)
        yield Row("Lemma 1", "mutual information", _where(domains), found.value, found.standard_error, value, value)


def theorem_1(setting: Setting) -> Iterator[Row]:
    """The covariance of gradients against mutual information: positive pairs, negatives of an anchor, whole batches."""
    families = {
        "positive pairs": Family.pairs(setting.positive, setting.positive),
        "negatives of an anchor": Family.anchor(setting.weights),
        "negatives of a batch": Family.batch(setting.weights),
    }
    points: list[Point] = [(setting.domains(rho), {}) for rho in CORRELATIONS]
    for case, family in families.items():
        yield from _traces_of_covariance(setting, "Theorem 1", case, family, points)


def theorem_1_limits(setting: Setting) -> Iterator[Row]:
    """What the theorem leans on: features that move together, and one augmentation for all clients."""
    size, chance = (PROFILES, len(setting.weights)), setting.generator("profiles")
    ties = torch.rand(size, generator=chance, dtype=torch.float64) ** 2  # few features are tied closely
    ties[0], ties[0, 0], ties[1] = 0.0, 0.9999, 0.5  # one feature all but equal, against eight loosely tied ones
    same = Family.pairs(setting.positive, setting.positive)
    profiles: list[Point] = [(Domains(tie), {}) for tie in ties]
    yield from _traces_of_covariance(setting, "Theorem 1", "each feature its own correlation", same, profiles)
    identity = torch.eye(len(setting.weights), dtype=torch.float64)
    still = torch.zeros_like(setting.shift)
    own = Family.pairs(*(formulas.positive(setting.weights, zoom * identity, still) for zoom in (0.5, 1.5)))
    tied: list[Point] = [(setting.domains(rho), {}) for rho in TIED]
    yield from _traces_of_covariance(setting, "Theorem 1", "each client its own augmentation", own, tied)


def lemma_2(setting: Setting) -> Iterator[Row]:
    """Where the first order stops holding: the spread of features, the shift, the strength of the augmentation."""
    one = setting.positive
    along = setting.weights / setting.weights.square().sum()
    for offset in (0.0, 1.0, 2.0):
        moved = replace(one, shift=offset * along)
        points: list[Point] = [
            (setting.domains(0.5, s), {"spread": one.spread(s), "offset": offset})
            for s in (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
        ]
        case = f"shift w.B = {offset:g}"
        yield from _traces_of_covariance(setting, "Lemma 2", case, Family.pairs(moved, moved), points)
    for strength in (0.0, 0.25, 0.5, 1.0, 2.0, 4.0):
        harder = replace(one, mix=strength * one.mix)
        points = [(setting.domains(0.5), {"strength": strength, "spread": harder.spread()})]
        case = f"augmentation {strength:g} times as strong"
        yield from _traces_of_covariance(setting, "Lemma 2", case, Family.pairs(harder, harder), points)


def claim_1(setting: Setting) -> Iterator[Row]:
    """Single entries of the covariance, the derivative as printed, and the series of the sigmoid."""
    one = setting.positive
    row, column = divmod(int(first_order(one, one, setting.domains(1.0)).argmin()), len(setting.weights))
    for index, rho in enumerate(TIED):
        domains = setting.domains(rho)
        x, y = sampling.positives(one, one)(setting.samples, domains, setting.generator("entry", index))
        found = sampling.trace_covariance(x[:, row : row + 1], y[:, column : column + 1])
        values = [float(rule(one, one, domains)[row, column]) for rule in (first_order, exact)]
        yield Row("Claim 1", "least entry of Cov", _where(domains), found.value, found.standard_error, *values)
    for linear in (0.0, 0.5, 0.9, 1.0, 1.5):
        yield _as_printed(setting, linear, shift=1.0)
    for spread in (0.5, 1.0, 2.0):
        inputs = sampling.normal((setting.samples,), setting.generator("series", str(spread)))
        activation = torch.sigmoid(spread * inputs)
        found, true = Estimate.of(activation * (1 - activation)), formulas.expected_slope(spread)
        for terms, value in enumerate(formulas.expected_slope_series(spread, 12), 1):
            at = {"spread": spread, "terms": float(terms)}
            yield Row("Claim 1", f"series, spread {spread:g}", at, found.value, found.standard_error, value, true)


def _as_printed(setting: Setting, linear: float, shift: float) -> Row:
    """One feature: the covariance from the derivative as printed."""
    one = formulas.positive(*(torch.tensor(v, dtype=torch.float64) for v in ([1.0], [[linear]], [shift])))
    domains = Domains(torch.tensor([0.5], dtype=torch.float64), 0.2)
    chance = setting.generator("printed", str(linear))
    found = sampling.trace_covariance(*sampling.positives(one, one)(setting.samples, domains, chance))
    value = float(domains.covariance) * formulas.printed_slope(1.0, linear, shift) ** 2
    true = float(exact(one, one, domains).trace())
    at = _where(domains, linear=linear, shift=shift)
    return Row("Claim 1", "derivative as printed", at, found.value, found.standard_error, value, true)


def corollary_1(setting: Setting) -> Iterator[Row]:
    """The trace of Var(g_i - g_j) against mutual information."""
    one = setting.positive
    for index, rho in enumerate(CORRELATIONS):
        domains = setting.domains(rho)
        sample = sampling.positives(one, one)(setting.samples, domains, setting.generator("corollary 1", index))
        found = sampling.trace_difference(*sample)
        values = [float(formulas.difference_variance(rule, one, one, domains).trace()) for rule in (first_order, exact)]
        yield Row("Corollary 1", "positive pairs", _where(domains), found.value, found.standard_error, *values)


def proposition_1(setting: Setting) -> Iterator[Row]:
    """How often leaving out the gradient that is not aligned increases the covariance: always, says the paper."""
    for spread in (1.5, 2.0):
        for index, rho in enumerate((0.0, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9)):
            chance = setting.generator("proposition 1", str(spread), index)
            partners = sampling.gradient_sets(setting.samples // 5, SET, rho, spread, NUM_FEATURES, chance)
            for case, sets in (
                ("a pair leaves", partners),
                ("unrelated partners leave", sampling.with_strangers(*partners)),
            ):
                at = {"correlation": rho, "spread": spread, "draws": float(len(sets[0]))}
                found = Estimate.of((_traces(*_without_last(*sets)) > _traces(*sets)).double())
                name = f"{case}, noise {spread:g}"
                yield Row("Proposition 1", name, at, found.value, found.standard_error, 1.0, None)
            found = Estimate.of((formulas.agreement_gain(*partners) > 0).double())
            at = {"correlation": rho, "spread": spread, "draws": float(len(partners[0]))}
            name = f"agreement with the mean, noise {spread:g}"
            yield Row("Proposition 1", name, at, found.value, found.standard_error, 1.0, 1.0)


def _without_last(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    return first[:, :-1], second[:, :-1]


def _traces(first: Tensor, second: Tensor) -> Tensor:
    return formulas.set_covariance(first, second).diagonal(dim1=1, dim2=2).sum(1)


SWEEPS: tuple[Callable[[Setting], Iterator[Row]], ...] = (
    lemma_1,
    theorem_1,
    theorem_1_limits,
    lemma_2,
    claim_1,
    corollary_1,
    proposition_1,
)
