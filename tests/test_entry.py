"""How a client begins a round, against the naive rules."""

import pytest
import torch

import oracles
from fedgala.entry import ENTRIES, Arrival, EntryNumbers
from fedgala.parameters import Layout

SHAPES = {"encoder.conv1.weight": (4, 3, 3, 3), "encoder.bn1.weight": (4,), "encoder.conv2.weight": (2, 4, 1, 1),
          "projector.0.weight": (5, 2), "predictor.0.weight": (2, 5)}  # fmt: skip
LAYOUT = Layout.of([(name, torch.zeros(shape)) for name, shape in SHAPES.items()])


def tensors(seed: int) -> dict[str, torch.Tensor]:
    chance = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=chance) for name, shape in SHAPES.items()}


@pytest.mark.parametrize("seed", range(5))
def test_fedemas_mixture_equals_its_naive_twin_and_scales_once(seed: int) -> None:
    sent, own, later = (tensors(3 * seed + i) for i in range(3))
    facts: dict[str, float] = {"round": 4.0}
    for number, mine in ((5, own), (6, later)):
        arrival = Arrival(number, LAYOUT.flatten(sent), LAYOUT.flatten(mine), facts)
        weights, found = ENTRIES["ema"].enter(arrival, LAYOUT, EntryNumbers(share=0.6))
        expected, scale = oracles.fedema(sent, mine, facts.get("scale"), 0.6)
        for name, view in LAYOUT.views(weights).items():
            torch.testing.assert_close(view.double(), expected[name], rtol=1e-4, atol=1e-5)
        assert found["scale"] == pytest.approx(scale, rel=1e-5)
        facts = {**found, **ENTRIES["ema"].leave(number, weights, LAYOUT)}
        assert facts["round"] == number


def test_fedema_takes_the_global_model_after_a_pause_and_keeps_its_scale() -> None:
    sent, own = LAYOUT.flatten(tensors(0)), LAYOUT.flatten(tensors(1))
    weights, facts = ENTRIES["ema"].enter(Arrival(5, sent, own, {"round": 3.0, "scale": 0.1}), LAYOUT, EntryNumbers())
    assert weights is sent and facts == {"scale": 0.1}


def test_fedema_from_where_nothing_has_moved_is_the_global_model() -> None:
    sent = LAYOUT.flatten(tensors(0))
    weights, facts = ENTRIES["ema"].enter(Arrival(2, sent, sent.clone(), {"round": 1.0}), LAYOUT, EntryNumbers())
    assert torch.equal(weights, sent) and facts == {"scale": 0.0}


def test_fedu_keeps_the_predictor_of_who_diverged_and_nothing_else() -> None:
    sent, own = tensors(0), tensors(1)
    for divergence, kept in ((0.39, False), (0.4, True)):
        facts = {"divergence": divergence}
        arrival = Arrival(2, LAYOUT.flatten(sent), LAYOUT.flatten(own), facts)
        weights, _ = ENTRIES["dapu"].enter(arrival, LAYOUT, EntryNumbers(threshold=0.4))
        for name, view in LAYOUT.views(weights).items():
            assert torch.equal(view, (own if kept and name.startswith("predictor") else sent)[name]), name


def test_fedus_divergence_is_the_mean_over_the_encoders_convolutions() -> None:
    update = tensors(7)
    expected = oracles.divergence(update)
    assert ENTRIES["dapu"].leave(3, LAYOUT.flatten(update), LAYOUT)["divergence"] == pytest.approx(expected, rel=1e-5)
