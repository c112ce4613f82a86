import pytest
import torch
from torch import Tensor, nn

import oracles
from fedgala.optim import OPTIMIZERS, Step
from fedgala.parameters import Layout
from fedgala.schedule import learning_rate

SHAPES = {"a.weight": (3, 2), "a.bias": (3,), "b.weight": (1100,)}
LAYOUT = Layout.of((name, torch.zeros(shape)) for name, shape in SHAPES.items())


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_masked_steps_equal_torch_with_grad_none(name: str, decay: float) -> None:
    generator = torch.Generator().manual_seed(0)

    def normal() -> dict[str, Tensor]:
        return {n: torch.randn(shape, generator=generator) for n, shape in SHAPES.items()}

    def make(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        if name == "adam":
            return torch.optim.Adam(parameters, lr=0.01, weight_decay=decay)
        return torch.optim.SGD(parameters, lr=0.01, momentum=0.9, weight_decay=decay)

    masks = (torch.rand(12, len(SHAPES), generator=generator) < 0.6).tolist()
    masks[0] = [True, False, False]  # a tensor whose first gradients are discarded
    weights, gradients = normal(), [normal() for _ in masks]
    steps = [
        {n: g[n] if k else None for n, k in zip(SHAPES, mask, strict=True)}
        for g, mask in zip(gradients, masks, strict=True)
    ]
    expected = oracles.optimize(weights, steps, make)

    flat, moments = LAYOUT.flatten(weights), OPTIMIZERS[name].start(LAYOUT)
    for g, mask in zip(gradients, masks, strict=True):
        OPTIMIZERS[name].step_(flat, LAYOUT.flatten(g), moments, torch.tensor(mask), LAYOUT, Step(0.01, 0.9, decay))
    for n, view in LAYOUT.views(flat).items():
        torch.testing.assert_close(view.double(), expected[n], rtol=1e-5, atol=1e-6)
    assert moments.steps.tolist() == [sum(column) for column in zip(*masks, strict=True)]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_what_is_discarded_stands_still_to_the_bit(name: str) -> None:
    flat = torch.randn(LAYOUT.length)
    moments = OPTIMIZERS[name].start(LAYOUT)
    keep = torch.ones(3, dtype=torch.bool)
    OPTIMIZERS[name].step_(flat, torch.randn(LAYOUT.length), moments, keep, LAYOUT, Step(0.1))
    before, state = flat.clone(), moments.clone()
    keep[1] = False
    OPTIMIZERS[name].step_(flat, torch.randn(LAYOUT.length), moments, keep, LAYOUT, Step(0.1, 0.9, 0.1))
    for old, new in ((before, flat), (state.first, moments.first), (state.second, moments.second)):
        if len(old):
            assert torch.equal(LAYOUT.views(old)["a.bias"], LAYOUT.views(new)["a.bias"])
            assert not torch.equal(LAYOUT.views(old)["a.weight"], LAYOUT.views(new)["a.weight"])


def test_learning_rate_is_constant_or_half_a_cosine() -> None:
    assert [learning_rate("constant", 0.3, r, 5) for r in range(1, 6)] == [0.3] * 5
    for r in range(1, 6):
        assert learning_rate("cosine", 0.3, r, 5) == pytest.approx(oracles.cosine_schedule(0.3, r, 5))
