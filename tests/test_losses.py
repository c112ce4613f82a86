import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import oracles
from fedgala.ssl.losses import nt_xent


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
