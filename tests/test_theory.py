import json
import math
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Generator, Tensor

import oracles
from fedgala.studies.theory import checks, formulas, page, pictures, rows, sampling, study
from fedgala.studies.theory.formulas import Domains, PairGradient, exact, first_order
from fedgala.studies.theory.rows import Row

ROOT = Path(__file__).parents[1]
random_seeds = st.integers(0, 2**16)
ties = st.floats(-0.99, 0.99)


def numbers(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def generator(seed: int) -> Generator:
    return Generator().manual_seed(seed)


def positive(seed: int, size: int = 3) -> PairGradient:
    chance = generator(seed)
    weights, shift = (sampling.normal((size,), chance) / 2 for _ in range(2))
    return formulas.positive(weights, sampling.normal((size, size), chance) / 2, shift)


def tied(rho: float, size: int = 3, deviation: float = 1.0) -> Domains:
    return Domains(torch.full((size,), rho, dtype=torch.float64), deviation)


def close(found: Tensor, expected: object, tolerance: float = 1e-9) -> None:
    torch.testing.assert_close(
        found, torch.as_tensor(expected, dtype=torch.float64), atol=tolerance, rtol=tolerance, check_stride=False
    )


# By hand, and against autograd.


def test_gradient_and_slope_of_one_feature_by_hand() -> None:
    one = formulas.positive(numbers(1.0), numbers(0.5)[None], numbers(1.0))
    s = 1 / (1 + math.e)  # sigmoid(-1): at x = 0 the pair differs by -1
    close(one(numbers(0.0)), [(s - 1) * -1])
    close(formulas.jacobian(one), [[(s * (1 - s) * -1 + (s - 1)) * 0.5]])
    assert formulas.printed_slope(1.0, 0.5, 1.0) == pytest.approx(s * (1 - s) * -1 + s * 0.5)
    assert one.spread(2.0) == pytest.approx(1.0)


@settings(max_examples=20, deadline=None)
@given(random_seeds, st.sampled_from([0.0, 0.5, 1.0]))
def test_gradient_is_that_of_the_loss(seed: int, target: float) -> None:
    chance = generator(seed)
    weights, x, other = (sampling.normal((4,), chance) for _ in range(3))
    difference = PairGradient(weights, torch.eye(4, dtype=torch.float64), other, target)
    close(difference(x), oracles.pair_gradient(weights, x, other, target).detach())


@settings(max_examples=20, deadline=None)
@given(random_seeds, st.lists(ties, min_size=3, max_size=3))
def test_jacobian_and_lemma_2_agree_with_the_oracles(seed: int, correlation: list[float]) -> None:
    one, other = positive(seed), positive(seed + 1)
    identity = torch.eye(3, dtype=torch.float64)
    first, second = (oracles.pair_jacobian(g.weights, identity - g.mix, g.shift) for g in (one, other))
    close(formulas.jacobian(one), first)
    domains = Domains(numbers(*correlation), 2.0)
    expected = oracles.lemma_2(first, second, [4 * rho for rho in correlation])
    close(first_order(one, other, domains), expected)


@settings(max_examples=20, deadline=None)
@given(st.lists(ties, min_size=1, max_size=4))
def test_lemma_1_agrees_with_determinants(correlation: list[float]) -> None:
    expected = oracles.gaussian_information(correlation)
    assert formulas.mutual_information(numbers(*correlation)) == pytest.approx(expected, abs=1e-9)


def test_lemma_1_in_its_limits() -> None:
    assert formulas.mutual_information(numbers(0, 0)) == 0
    assert formulas.mutual_information(numbers(0, 1)) == math.inf
    assert formulas.mutual_information(numbers(0.6, -0.6)) == pytest.approx(-math.log(0.64))


def test_derivative_over_symmetric_negatives_is_half_the_identity() -> None:
    """Whatever the weights: what the proof of Claim 1 looks for in a series that diverges."""
    identity, other = torch.eye(2, dtype=torch.float64), numbers(1.3, -0.4)
    sides = [PairGradient(numbers(2.0, -1.0), identity, shift, 0.0) for shift in (other, -other)]
    close(torch.stack([formulas.jacobian(side) for side in sides]).mean(0), identity / 2)


# The exact covariance.


@pytest.mark.parametrize(("size", "nodes", "correlation"), [(1, 40, [0.7]), (1, 40, [-1.0]), (2, 9, [0.9, -0.3])])
def test_exact_agrees_with_quadrature_over_all_features(size: int, nodes: int, correlation: list[float]) -> None:
    one, other = positive(3, size), positive(4, size)
    deviation = 1.0 if size == 1 else 0.3  # so that few nodes do
    expected = oracles.gradient_covariance([one, other], correlation, nodes, deviation)
    close(exact(one, other, Domains(numbers(*correlation), deviation)), expected, 1e-7)


def test_exact_where_it_is_known() -> None:
    one = positive(0)
    close(exact(one, one, tied(0.0)), torch.zeros(3, 3))
    still = PairGradient(one.weights, torch.zeros(3, 3, dtype=torch.float64), one.shift, 1.0)
    close(exact(still, still, tied(0.5)), torch.zeros(3, 3))
    linear = PairGradient(torch.zeros_like(one.weights), one.mix, one.shift, 1.0)  # its sigmoid is 1/2 everywhere
    close(exact(linear, linear, tied(0.7)), first_order(linear, linear, tied(0.7)))
    close(exact(linear, linear, tied(0.7)), 0.7 / 4 * one.mix @ one.mix.T)


def test_exact_of_a_steep_sigmoid_is_that_of_a_rectifier() -> None:
    """With w towards infinity g(x) = -min(x, 0), whose covariance is an arc-cosine kernel."""
    steep = formulas.positive(numbers(60.0), numbers(0.0)[None], numbers(0.0))
    for rho in (-0.5, 0.3, 0.9):
        kernel = (math.sqrt(1 - rho**2) + rho * (math.pi - math.acos(rho)) - 1) / (2 * math.pi)
        assert float(exact(steep, steep, tied(rho, 1))) == pytest.approx(kernel, abs=1e-3)


@settings(max_examples=10, deadline=None)
@given(random_seeds, st.lists(st.floats(0.1, 1), min_size=3, max_size=3))
def test_lemma_2_is_exact_for_features_that_hardly_vary(seed: int, correlation: list[float]) -> None:
    one, domains = positive(seed), Domains(numbers(*correlation), 1e-3)
    torch.testing.assert_close(exact(one, one, domains), first_order(one, one, domains), rtol=1e-4, atol=1e-11)


@settings(max_examples=15, deadline=None)
@given(
    random_seeds,
    st.lists(st.floats(0, 0.9), min_size=3, max_size=3),
    st.lists(st.floats(0, 0.1), min_size=3, max_size=3),
)
def test_theorem_1_holds_in_the_loewner_order(seed: int, low: list[float], more: list[float]) -> None:
    """For one gradient and correlations of at least 0: a gain in any of them adds a positive semidefinite matrix."""
    one, base = positive(seed), numbers(*low)
    gain = exact(one, one, Domains(base + numbers(*more))) - exact(one, one, Domains(base))
    assert float(torch.linalg.eigvalsh((gain + gain.T) / 2).min()) > -1e-9


def test_theorem_1_does_not_hold_beyond() -> None:
    one = checks.Setting.of(0, 1).positive
    some, single = Domains(torch.full((8,), 0.5)), Domains(numbers(0.9999, *[0] * 7))
    information = [formulas.mutual_information(domains.correlation) for domains in (some, single)]
    covariance = [float(exact(one, one, Domains(d.correlation.double())).trace()) for d in (some, single)]
    assert information[0] < information[1] and covariance[0] > covariance[1]
    assert float(exact(one, one, tied(-0.9, 8)).trace()) < float(exact(one, one, tied(-0.5, 8)).trace()) < 0
    assert float(first_order(one, one, tied(1.0, 8)).min()) < 0  # Claim 1 says all entries are positive


def test_negatives_of_a_whole_batch_have_no_first_order() -> None:
    one = formulas.negative(numbers(0.3, -1, 0.5), target=0.5)
    close(formulas.over_batch(first_order, one, tied(0.8), 5), torch.zeros(3, 3))
    once, twice = (formulas.over_batch(exact, one, tied(rho), 5) for rho in (0.8, -0.8))
    close(once, twice)
    assert float(once.trace()) > 0.01
    alone = formulas.negative(numbers(0.3, -1, 0.5))
    close(formulas.over_negatives(exact, alone, tied(0.8), 1), exact(alone, alone, tied(0.8)))
    close(formulas.over_batch(exact, one, tied(0.8), 2), exact(one, one, tied(0.8)))


@settings(max_examples=10, deadline=None)
@given(random_seeds, st.floats(0, 0.95))
def test_corollary_1_adds_up(seed: int, rho: float) -> None:
    one = positive(seed)
    variance = formulas.difference_variance(exact, one, one, tied(rho))
    close(variance, 2 * (exact(one, one, tied(1.0)) - exact(one, one, tied(rho))), 1e-8)
    assert variance.trace() >= formulas.difference_variance(exact, one, one, tied(rho + 0.05)).trace()


# Monte Carlo.


FAMILIES = {
    "positive pairs": checks.Family.pairs(positive(5), positive(6)),
    "anchor": checks.Family.anchor(numbers(0.8, -0.5, 0.2)),
    "batch": checks.Family.batch(numbers(0.8, -0.5, 0.2)),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_samples_have_the_exact_covariance(name: str) -> None:
    family, domains = FAMILIES[name], Domains(numbers(0.9, 0.5, -0.3))
    found = sampling.trace_covariance(*family.draw(int(40_000 * family.share), domains, generator(0)))
    true = float(family.covariance(exact, domains).trace())
    assert abs(found.value - true) < 4 * found.standard_error
    assert found.standard_error < abs(true) / 4


@pytest.mark.parametrize(("sampler", "ordered"), [("negatives", False), ("batches", True)])
def test_samples_are_gradients_of_losses(sampler: str, ordered: bool) -> None:
    weights, domains, size = numbers(1.0, -2.0), Domains(numbers(0.5, 0.1)), 4
    make = sampling.batches(weights, size) if ordered else sampling.negatives(weights, size - 1)
    found = make(3, domains, generator(1))
    for gradients, samples in zip(found, sampling.draw((3, size, 2), domains, generator(1)), strict=True):
        for gradient, x in zip(gradients, samples, strict=True):
            anchors = range(size) if ordered else [0]
            parts = [oracles.pair_gradient(weights, x[a], x[n], 0.0) for a in anchors for n in range(size) if n != a]
            close(gradient, torch.stack(parts).mean(0).detach())


def test_samples_of_domains_are_tied_as_said() -> None:
    x, y = sampling.draw((50_000, 2), Domains(numbers(0.8, -1.0), 2.0), generator(0))
    close(x.T @ x / 50_000, [[4, 0], [0, 4]], 0.06)
    close(x.T @ y / 50_000, [[3.2, 0], [0, -4]], 0.06)
    assert torch.equal(x[:, 1], -y[:, 1])
    found = sampling.information(Domains(numbers(0.8, 0.3), 2.0), 20_000, generator(1))
    assert abs(found.value - formulas.mutual_information(numbers(0.8, 0.3))) < 4 * found.standard_error < 0.1


def test_a_standard_error_by_hand() -> None:
    found = sampling.Estimate.of(numbers(1, 2, 3, 6))
    assert found.value == 3 and found.standard_error == pytest.approx(math.sqrt(14 / 3) / 2)
    assert sampling.trace_difference(numbers(1, 2, 6)[:, None], numbers(0, 0, 0)[:, None]).value == pytest.approx(
        14 / 3
    )


# Proposition 1.


def test_proposition_1_has_a_counterexample() -> None:
    """All assumptions hold, one gradient is not aligned, and without its pair the covariance falls from 1.75 to 0.5."""
    first, second = numbers(3, 2, 1)[None, :, None], numbers(3, 2, -0.5)[None, :, None]
    assert sampling.fulfils(first, second).item()
    assert formulas.set_covariance(first, second).item() == pytest.approx(1.75)
    assert formulas.set_covariance(first[:, :-1], second[:, :-1]).item() == pytest.approx(0.5)
    assert formulas.agreement_gain(first, second).item() == pytest.approx((2.5 - 1.5) * 1.75)


@settings(max_examples=20, deadline=None)
@given(random_seeds, st.integers(3, 6))
def test_the_last_pair_takes_its_term_along(seed: int, count: int) -> None:
    chance = generator(seed)
    first, second = sampling.normal((count, 3), chance), sampling.normal((count, 3), chance)
    whole, rest = (formulas.set_covariance(first[:k], second[:k]) for k in (count, count - 1))
    close(whole, oracles.set_covariance(first, second))
    close(whole, (count - 2) / (count - 1) * rest + formulas.removal_term(first, second))


def test_sets_fulfil_the_assumption_and_gain_agreement() -> None:
    partners = sampling.gradient_sets(2000, 6, 0.5, 2.0, 4, generator(0))
    strangers = sampling.with_strangers(*partners)
    for first, second in (partners, strangers):
        assert len(first) > 50
        common = torch.cat([first, second], 1).mean(1, keepdim=True)
        assert ((first * common).sum(-1) > 0).all() and ((second * common).sum(-1)[:, :-1] > 0).all()
        assert ((second * common).sum(-1)[:, -1] < 0).all()
        assert (formulas.agreement_gain(first, second) > 0).all()
    tie, none = (float((a[:, -1, 1:] * b[:, -1, 1:]).mean()) for a, b in (partners, strangers))
    assert tie > 0.2 and abs(none) < 0.1  # of at most 0.5: that all others are aligned leaves less noise across


# The series of the sigmoid.


def test_coefficients_are_those_of_the_sigmoid_and_the_printed_ones_are_not() -> None:
    found = [float(c) for c in formulas.sigmoid_coefficients(5)]
    assert found == pytest.approx(oracles.sigmoid_coefficients(5))
    assert formulas.sigmoid_coefficients(2) == [Fraction(1, 4), Fraction(-1, 48)]
    assert formulas.sigmoid_coefficients(2, printed=True) == [Fraction(1, 12), Fraction(7, 720)]


def test_the_series_diverges_under_the_expectation() -> None:
    assert formulas.expected_slope(0.0) == pytest.approx(0.25)
    assert formulas.expected_slope_series(0.1, 4)[-1] == pytest.approx(formulas.expected_slope(0.1), abs=1e-6)
    errors = [abs(value - formulas.expected_slope(1.0)) for value in formulas.expected_slope_series(1.0, 20)]
    assert min(errors) == errors[3] and errors[-1] > 1000


# Rows, records, the page.


def test_rows_judge_themselves() -> None:
    row = Row("Theorem 1", "a", {"information": 1.0}, 1.2, 0.1, 2.0, 1.0)
    assert row.error == 1.0 and row.deviation == pytest.approx(2) and row.agrees
    assert not Row("Theorem 1", "a", {}, 1.5, 0.1, 2.0, 1.0).agrees
    assert not Row("Theorem 1", "a", {}, 1.5, 0.0, 2.0, 1.0).agrees
    nothing = Row("Theorem 1", "a", {}, 0.0, 0.0, 0.0, 0.0)
    assert nothing.error is None and nothing.agrees


def test_order_by_hand() -> None:
    points = [Row("", "", {"information": i}, 0, 1, 0, value) for i, value in ((0.0, 1.0), (1.0, 3.0), (2.0, 2.0))]
    assert rows.out_of_order(points) == pytest.approx(1 / 3)
    assert rows.out_of_order(points, falling=True) == pytest.approx(2 / 3)
    assert rows.out_of_order(points[:1]) is None


def test_sweeps_agree_with_the_exact_values_on_few_samples() -> None:
    setting = checks.Setting.of(1, 2000)
    assert setting.positive.spread() == pytest.approx(1)
    found = [row for sweep in (checks.lemma_1, checks.claim_1, checks.corollary_1) for row in sweep(setting)]
    assert len(found) == 12 + (12 + 5 + 36) + 18
    assert all(row.agrees for row in found)


def test_the_study_writes_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "SWEEPS", (checks.lemma_1, checks.proposition_1))
    monkeypatch.setattr(pictures, "PICTURES", {"limits": ((pictures.removal,) * 3, (9, 3))})
    said: list[str] = []
    found = study.check_theory(tmp_path, seed=3, samples=1000, say=said.append)
    assert rows.read_rows(tmp_path / "records.jsonl") == found
    assert found == study.check_theory(tmp_path / "again", seed=3, samples=1000)
    assert (tmp_path / "plots" / "theory-limits.png").stat().st_size > 5000
    assert said[-1].startswith("54 checks in") and said[-1].endswith("differ in 0")


def test_committed_records_hold_and_are_what_the_page_shows(tmp_path: Path) -> None:
    """Made by ``python -m fedgala.studies.theory --out results/theory --page docs/theory.md``."""
    records = ROOT / "results" / "theory" / "records.jsonl"
    found = rows.read_rows(records)
    assert len(found) == 261 and all(row.agrees for row in found)
    about = json.loads(records.read_text().splitlines()[0])
    assert (about["kind"], about["seed"], about["samples"]) == ("theory", 0, study.SAMPLES)
    shown = ROOT / "docs" / "theory.md"
    (tmp_path / "page.md").write_text(shown.read_text().replace("| yes |", "| no |"))
    page.put_into(tmp_path / "page.md", page.tables(found))
    computed = (tmp_path / "page.md").read_text()
    assert page.BEGIN in computed and shown.read_text().split(page.BEGIN)[1] == computed.split(page.BEGIN)[1]
