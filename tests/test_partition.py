"""Who holds what: nothing lost, nothing twice, and shares as promised, for any number of clients."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import random_domain
from fedgala import api
from fedgala.config import RunConfig
from fedgala.data.domain import DomainData
from fedgala.data.partition import DEALS, partition
from fedgala.errors import ConfigError, DataError

SIZES = {"a": 60, "b": 20, "c": 40}
DOMAINS = [random_domain(name, size, size=4, seed=i) for i, (name, size) in enumerate(SIZES.items())]


def deal(clients: int | None, rule: str = "iid", alpha: float = 0.5, seed: int = 0) -> tuple[DomainData, ...]:
    return partition(DOMAINS, clients, rule, alpha, torch.Generator().manual_seed(seed))


def pictures(parts: tuple[DomainData, ...]) -> list[bytes]:
    return sorted(bytes(image.numpy().tobytes()) for part in parts for image in part.pictures())


@given(st.integers(1, 120), st.sampled_from(sorted(DEALS)), st.floats(0.01, 100), st.integers(0, 99))
def test_every_picture_has_one_owner_and_nobody_is_empty(clients: int, rule: str, alpha: float, seed: int) -> None:
    parts = deal(clients, rule, alpha, seed)
    assert len(parts) == clients == len({part.name for part in parts})
    assert pictures(parts) == pictures(tuple(DOMAINS)) and min(map(len, parts)) >= 1
    for part in parts:
        assert part.labels is not None and len(part.labels) == len(part.sizes) == len(part)


def test_one_client_for_each_domain_is_the_domains() -> None:
    assert deal(None) == tuple(DOMAINS) == deal(3)


def test_shares_follow_size_and_clients_know_their_domain() -> None:
    parts = deal(6)
    assert [(part.name, len(part)) for part in parts] == [
        ("a-0", 20), ("a-1", 20), ("a-2", 20), ("b", 20), ("c-0", 20), ("c-1", 20),
    ]  # fmt: skip
    assert [(part.name, len(part)) for part in deal(2)] == [("a+c", 100), ("b", 20)]


def test_alpha_says_how_skewed_classes_are() -> None:
    def purity(alpha: float) -> float:
        shares = []
        for seed in range(20):
            for part in deal(6, "dirichlet", alpha, seed):
                assert part.labels is not None
                shares.append(float(part.labels.bincount().max()) / len(part))
        return sum(shares) / len(shares)

    assert purity(0.05) > 0.8 > purity(1.0) > purity(100.0) and purity(100.0) < 0.62


def test_equal_seeds_deal_alike_and_others_do_not() -> None:
    first, again, other = deal(6), deal(6), deal(6, seed=1)
    assert all(torch.equal(a.pictures(), b.pictures()) for a, b in zip(first, again, strict=True))
    assert not all(torch.equal(a.pictures(), b.pictures()) for a, b in zip(first, other, strict=True))


def test_what_can_not_be_dealt_is_refused() -> None:
    with pytest.raises(ConfigError, match="partition.clients = 121: there are 120 pictures"):
        deal(121)
    bare = [random_domain("bare", 10, labelled=False)]
    with pytest.raises(DataError, match="bare has no labels; use iid"):
        partition(bare, 2, "dirichlet", 0.5, torch.Generator())


def test_a_run_with_many_clients(tiny: Callable[..., RunConfig]) -> None:
    run = api.train(tiny(partition={"clients": 5}, federation={"batch_size": 4, "participation": 0.6}))
    names = {name for record in run.records.read("round") for name in record["clients"]}
    assert names <= {"bright-0", "bright-1", "bright-2", "dark-0", "dark-1"} and len(names) >= 3
    assert (run.folder / "plots" / "clients.png").exists()
