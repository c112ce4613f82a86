import pytest
import torch
from torch import nn

from fedgala.parameters import BLOCK, FlatModel, Layout


def module() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 5, 3, bias=False), nn.BatchNorm2d(5), nn.Flatten(), nn.Linear(5 * 6 * 6, 40))


def test_moving_the_flat_vector_moves_the_module() -> None:
    net = module()
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    flat = FlatModel(net)
    assert all(torch.equal(p, before[name]) for name, p in net.named_parameters())
    flat.weights.mul_(2)
    assert all(torch.equal(p, 2 * before[name]) for name, p in net.named_parameters())


def test_backward_fills_the_flat_gradient_and_forward_the_statistics() -> None:
    net, images = module(), torch.rand(4, 3, 8, 8)
    twin = module()
    twin.load_state_dict(net.state_dict())
    flat = FlatModel(net)
    for _ in range(2):
        flat.gradients.zero_()
        net(images).square().sum().backward()
    twin(images)
    twin(images).square().sum().backward()
    for name, p in twin.named_parameters():
        assert p.grad is not None
        torch.testing.assert_close(flat.layout.views(flat.gradients)[name], p.grad, rtol=1e-3, atol=1e-3)
    for name, b in twin.named_buffers():
        if b.is_floating_point():
            torch.testing.assert_close(flat.statistics_layout.views(flat.statistics)[name], b)


def test_names_in_and_out_are_inverse_and_padding_stays_zero() -> None:
    flat = FlatModel(module())
    named = {name: torch.randn(view.shape) for name, view in flat.layout.views(flat.weights).items()}
    vector = flat.layout.flatten(named)
    assert all(torch.equal(view, named[name]) for name, view in flat.layout.views(vector).items())
    assert vector.count_nonzero() == sum(tensor.numel() for tensor in named.values())


@pytest.mark.parametrize("change", [{"0.extra": torch.zeros(1)}, {"3.bias": torch.zeros(6)}])
def test_flatten_refuses_other_names_and_shapes(change: dict[str, torch.Tensor]) -> None:
    flat = FlatModel(module())
    with pytest.raises(ValueError, match=next(iter(change))):
        flat.layout.flatten({**flat.layout.views(flat.weights), **change})


def test_sums_and_spread_follow_segments_of_any_length() -> None:
    layout = Layout.of([("a", torch.zeros(3)), ("b", torch.zeros(BLOCK + 1)), ("c", torch.zeros(2, 2))])
    vector = layout.flatten({"a": torch.ones(3), "b": torch.full((BLOCK + 1,), 2.0), "c": torch.ones(2, 2)})
    assert layout.sums(vector).tolist() == [3, 2 * BLOCK + 2, 4]
    assert layout.spread(torch.tensor([1.0, 2.0, 3.0])).squeeze(1).tolist() == [1, 2, 2, 3]


def test_units_group_tensors_by_what_is_judged_as_a_whole() -> None:
    layout = FlatModel(module()).layout
    assert layout.units("tensor")[0].tolist() == [0, 1, 2, 3, 4]
    assert layout.units("layer")[0].tolist() == [0, 1, 1, 2, 2]
    assert layout.units("model")[0].tolist() == [0] * 5
