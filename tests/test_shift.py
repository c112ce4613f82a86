"""Figure 2a: covariance of gradients and information of domains, against naive twins and on a tiny run."""

from collections.abc import Callable

import pytest
import torch

import oracles
from conftest import random_domain
from fedgala import api, seeds
from fedgala.config import RunConfig
from fedgala.errors import DataError
from fedgala.studies.shift import corresponding, covariances, information, measure_shift


def test_covariances_from_inner_products_are_those_of_the_vectors() -> None:
    sets = torch.randn(3, 9, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 0.3  # K, n, length
    sets[1] += 0.7 * sets[0]
    means = sets.mean(1)
    products = torch.einsum("inl,jnl->nij", sets, sets)
    found = covariances(means @ means.T, products, torch.einsum("inl,jl->nij", sets, means))
    for i in range(3):
        for j in range(3):
            exact = oracles.set_covariance(sets[i], sets[j])
            assert float(found.trace[i, j]) == pytest.approx(sum(exact[m][m] for m in range(5)))
            assert float(found.cosine[i, j]) == pytest.approx(oracles.cosine(means[i], means[j]))


def test_standard_error_is_that_of_repetitions() -> None:
    chance = torch.Generator().manual_seed(1)
    traces, errors = [], []
    for _ in range(400):
        first = torch.randn(24, 4, dtype=torch.float64, generator=chance)
        sets = torch.stack([first, 0.5 * first + torch.randn(24, 4, dtype=torch.float64, generator=chance)])
        means = sets.mean(1)
        products, with_means = torch.einsum("inl,jnl->nij", sets, sets), torch.einsum("inl,jl->nij", sets, means)
        found = covariances(means @ means.T, products, with_means)
        traces.append(float(found.trace[0, 1]))
        errors.append(float(found.error[0, 1]))
    spread = torch.tensor(traces).std()
    assert torch.tensor(traces).mean() == pytest.approx(2.0, abs=4 * float(spread) / 20)
    assert torch.tensor(errors).mean() == pytest.approx(float(spread), rel=0.15)


def test_information_is_that_of_the_determinants_and_of_lemma_1() -> None:
    chance = torch.Generator().manual_seed(0)
    one = torch.randn(500, 4, dtype=torch.float64, generator=chance)
    other = 0.6 * one + 0.8 * torch.randn(500, 4, dtype=torch.float64, generator=chance)
    mixed = other @ torch.randn(4, 4, dtype=torch.float64, generator=chance)
    assert information(one, mixed, 4) == pytest.approx(oracles.information_from_samples(one, mixed), rel=1e-6)
    assert information(one, mixed, 4) == pytest.approx(oracles.gaussian_information([0.6] * 4), abs=0.15)
    strangers = torch.randn(500, 4, dtype=torch.float64, generator=chance)
    assert 0 <= information(one, strangers, 4) < 0.05


def test_information_of_constant_features_is_none() -> None:
    features = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    padded = torch.cat([features, torch.zeros(50, 2)], 1)
    assert information(padded, features, 16) == pytest.approx(information(features, features, 3))


def test_corresponding_pictures_have_one_class() -> None:
    domains = [random_domain(name, count) for name, count in (("a", 20), ("b", 31))]
    first, second = corresponding(domains, 200, seeds.generator(0, "test"))
    assert domains[0].labels is not None and domains[1].labels is not None
    assert torch.equal(domains[0].labels[first], domains[1].labels[second])
    assert len(set(first.tolist())) > 15 and len(set(second.tolist())) > 20
    with pytest.raises(DataError, match="labels in all domains"):
        corresponding([domains[0], random_domain("c", labelled=False)], 4, seeds.generator(0, "test"))


def test_a_run_is_measured_between_all_pairs_of_domains(tiny: Callable[..., RunConfig]) -> None:
    run = api.train(tiny())
    record = measure_shift(run, batches=3, pairs=64)
    assert [row["pair"] for row in record["domains"]] == [["bright", "dark"], ["bright", "plain"], ["dark", "plain"]]
    assert record == measure_shift(run, batches=3, pairs=64)
    for row in record["domains"]:
        assert row["information"] > 0 and abs(row["correlation"]) <= 1 and row["covariance_error"] > 0
