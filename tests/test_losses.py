import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import normalize

import oracles
from fedgala.ssl.losses import (
    adversarial_step,
    domain_mixture,
    info_nce,
    model_contrast,
    negative_cosine,
    nt_xent,
    nt_xent_between,
    regression,
    relation,
)


@given(st.integers(1, 5), st.integers(1, 6), st.sampled_from([0.07, 0.5, 1.0]), st.integers(0, 1000))
def test_nt_xent_equals_its_naive_twin(pairs: int, length: int, temperature: float, seed: int) -> None:
    z = torch.randn(2 * pairs, length, generator=torch.Generator().manual_seed(seed))
    if pairs > 1:
        assert float(nt_xent(z, temperature)) == pytest.approx(oracles.nt_xent(z, temperature), rel=1e-3, abs=1e-3)


def test_nt_xent_by_hand() -> None:
    z = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0], [0.0, 3.0]])
    assert float(nt_xent(z, 1.0)) == pytest.approx(-math.log(math.e / (math.e + 2)))


def test_one_pair_has_nothing_to_confuse_it_with() -> None:
    assert float(nt_xent(torch.randn(2, 8), 0.07)) == pytest.approx(0, abs=1e-6)


def draws(seed: int, *shapes: tuple[int, ...]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) for shape in shapes]


@given(st.integers(1, 4), st.integers(2, 5), st.sampled_from([0.1, 0.5, 1.0]), st.integers(0, 1000))
def test_info_nce_equals_its_naive_twin(count: int, length: int, temperature: float, seed: int) -> None:
    queries, keys, negatives = draws(seed, (count, length), (count, length), (6, length))
    negatives = normalize(negatives, dim=1)
    expected = oracles.info_nce(queries, keys, negatives, temperature)
    assert float(info_nce(queries, keys, negatives, temperature)) == pytest.approx(expected, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("seed", range(5))
def test_adversaries_climb_along_the_gradient_of_the_loss(seed: int) -> None:
    queries, keys, free = draws(seed, (5, 4), (5, 4), (7, 4))
    negatives = normalize(free, dim=1).requires_grad_()
    torch.autograd.backward(info_nce(queries, keys, negatives, 0.3))
    assert negatives.grad is not None
    torch.testing.assert_close(adversarial_step(queries, keys, negatives.detach(), 0.3), negatives.grad)


@given(st.integers(1, 4), st.integers(1, 3), st.sampled_from([0.2, 1.0]), st.integers(0, 1000))
def test_the_mixture_over_domains_equals_its_naive_twin(count: int, domains: int, heat: float, seed: int) -> None:
    queries, keys, free, raw = draws(seed, (count, 4), (count, 4), (domains, 5, 4), (count, domains))
    queues, weights = normalize(free, dim=2), raw.softmax(1)
    expected = oracles.domain_mixture(queries, keys, queues, weights, heat)
    found = domain_mixture(queries, keys, queues, weights.log(), heat)
    assert float(found) == pytest.approx(expected, rel=1e-3, abs=1e-4)


def test_the_mixture_over_one_domain_is_info_nce() -> None:
    queries, keys, free = draws(0, (3, 4), (3, 4), (6, 4))
    queue = normalize(free, dim=1)
    found = domain_mixture(queries, keys, queue[None], torch.zeros(3, 1), 0.2)
    torch.testing.assert_close(found, info_nce(queries, keys, queue, 0.2))


@given(st.integers(1, 4), st.integers(2, 5), st.integers(0, 1000))
def test_regression_and_relation_and_contrast_equal_their_naive_twins(count: int, length: int, seed: int) -> None:
    a, b, c, others = draws(seed, (count, length), (count, length), (count, length), (4, length))
    assert float(regression(a, b)) == pytest.approx(oracles.regression(a, b), abs=1e-4)
    assert float(negative_cosine(a, b)) == pytest.approx(oracles.regression(a, b) / 2 - 1, abs=1e-4)
    for heat in (0.05, 0.1, 0.5):
        assert float(relation(a, b, others, heat)) == pytest.approx(oracles.relation(a, b, others, heat), abs=2e-3)
    assert float(model_contrast(a, b, c, 0.5)) == pytest.approx(oracles.model_contrast(a, b, c, 0.5), rel=1e-3)


def test_between_two_networks_is_nt_xent_of_both_halves() -> None:
    a, b = draws(3, (4, 5), (4, 5))
    expected = oracles.nt_xent(torch.cat([a, b]), 0.5)
    assert float(nt_xent_between(a, b, 0.5)) == pytest.approx(expected, rel=1e-4)
