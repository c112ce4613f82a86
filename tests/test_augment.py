from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageEnhance
from torch import Tensor

import oracles
from fedgala.data.augment import (
    BRIGHTNESS,
    COLUMNS,
    CONTRAST,
    HUE,
    SATURATION,
    Draws,
    Views,
    apply,
    draw,
    draws_from,
    resize,
)
from fedgala.errors import ConfigError

LEVEL = 1 / 255
STILL = Views(flip=0, brightness=0, contrast=0, saturation=0, hue=0, jitter=1, grayscale=0)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=seeded(seed))


def smooth(count: int, side: int) -> Tensor:
    """Pictures with strong colours and large areas, as photographs have."""
    return (resize(noise(count, 3, 4, 4), torch.full((count, 2), 4), side) * 255).round().to(torch.uint8)


def whole(count: int, side: int) -> Draws:
    """Draws that change nothing."""
    return Draws(
        box=torch.tensor([[0.0, 0.0, side, side]]).repeat(count, 1),
        flip=torch.zeros(count, dtype=torch.bool),
        factors=torch.tensor([[1.0, 1.0, 1.0, 0.0]]).repeat(count, 1),
        order=torch.arange(4).repeat(count, 1),
        grayscale=torch.zeros(count, dtype=torch.bool),
    )


def with_factor(draws: Draws, operation: int, factor: Tensor) -> Draws:
    factors = draws.factors.clone()
    factors[:, operation] = factor
    return replace(draws, factors=factors)


def boxes(draws: Draws) -> list[list[int]]:
    return [[int(number) for number in box] for box in draws.box.tolist()]


def off_by(got: Tensor, expected: oracles.Picture) -> float:
    assert got.dtype == torch.float32
    return float(np.abs(got.double().numpy() - expected).max())


# --- crop, resize, flip


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("crop", [5, 32])
def test_crop_resize_and_flip_equal_pillow_and_the_exact_filter(channels: int, crop: int) -> None:
    images, views = noise(24, channels, 40, 40), replace(STILL, scale=(0.001, 1.0), flip=0.5)
    sizes = torch.randint(1, 41, (24, 2), generator=seeded(1))
    sizes[0], sizes[1], sizes[2] = torch.tensor([1, 1]), torch.tensor([40, 40]), torch.tensor([40, 1])
    draws = draw(sizes, views, seeded())
    assert draws.flip.any() and not draws.flip.all() and (draws.box[:, 2:] == 1).any()
    views_of_all = apply(images, draws, crop)
    for image, box, flip, got in zip(images.numpy(), boxes(draws), draws.flip.tolist(), views_of_all, strict=True):
        for expected, tolerance in ((oracles.crop_resize, 2e-6), (oracles.pillow_crop_resize, 1.5 * LEVEL)):
            assert off_by(got, expected(image, box, flip, crop).repeat(3 // channels, axis=0)) < tolerance


@settings(max_examples=40, deadline=None)
@given(st.tuples(st.integers(1, 50), st.integers(1, 50)), st.integers(1, 40), st.integers(0, 2**31))
def test_boxes_of_any_picture_lie_inside_and_resize_like_pillow(size: tuple[int, int], crop: int, seed: int) -> None:
    images, sizes = noise(1, 3, 50, 50, seed=seed), torch.tensor([size])
    draws = draw(sizes, STILL, seeded(seed))
    [[top, left, height, width]] = boxes(draws)
    assert top >= 0 and left >= 0 and height >= 1 and width >= 1
    assert top + height <= size[0] and left + width <= size[1]
    image = images[0].numpy()
    expected = oracles.pillow_crop_resize(image, [top, left, height, width], False, crop)
    assert off_by(apply(images, draws, crop)[0], expected) < 1.5 * LEVEL
    expected = oracles.pillow_crop_resize(image, [0, 0, *size], False, crop)
    assert off_by(resize(images, sizes, crop)[0], expected) < 1.5 * LEVEL


def test_nothing_outside_a_box_is_read() -> None:
    sizes = torch.tensor([[40, 40], [17, 30], [30, 9]]).repeat(20, 1)
    draws = draw(sizes, Views(scale=(0.08, 0.5)), seeded())
    images = noise(60, 3, 40, 40)
    spoilt = torch.full_like(images, 255)
    for old, new, (top, left, height, width) in zip(images, spoilt, boxes(draws), strict=True):
        inside = (slice(None), slice(top, top + height), slice(left, left + width))
        new[inside] = old[inside]
    assert torch.equal(apply(images, draws, 16), apply(spoilt, draws, 16))


def test_resize_reads_nothing_outside_the_picture() -> None:
    sizes, images = torch.tensor([[17, 30], [30, 9]]), noise(2, 3, 40, 40)
    spoilt = torch.full_like(images, 255)
    for old, new, (height, width) in zip(images, spoilt, sizes.tolist(), strict=True):
        new[:, :height, :width] = old[:, :height, :width]
    assert torch.equal(resize(images, sizes, 16), resize(spoilt, sizes, 16))


def test_white_stays_within_one() -> None:
    white, sizes = torch.full((30, 3, 40, 40), 255, dtype=torch.uint8), torch.arange(11, 41)[:, None].repeat(1, 2)
    assert resize(white, sizes, 32).max() <= 1
    assert apply(white, draw(sizes, STILL, seeded()), 32).max() <= 1


def test_two_views_of_a_picture_need_no_second_copy_of_it() -> None:
    images = noise(5, 3, 20, 20)
    draws = draw(torch.full((10, 2), 20), Views(), seeded())
    torch.testing.assert_close(apply(images, draws, 8), apply(images.repeat(2, 1, 1, 1), draws, 8), atol=2e-6, rtol=0)


def test_draws_of_zero_strength_leave_every_pixel_alone() -> None:
    images, sizes = noise(8, 3, 16, 16), torch.full((8, 2), 16)
    draws = draw(sizes, replace(STILL, crop=16, scale=(1, 1), ratio=(1, 1)), seeded())
    assert torch.equal(apply(images, draws, 16), images / 255)
    assert torch.equal(resize(images, sizes, 16), images / 255)
    small = apply(images, draws, 7)
    assert torch.equal(small, resize(images, sizes, 7))
    assert torch.equal(small, apply(images, whole(8, 16), 7))


# --- colours


def test_brightness_contrast_and_saturation_equal_pillow_up_to_its_rounding() -> None:
    images, factors = smooth(12, 24), torch.linspace(0, 2, 12)
    enhancers = {BRIGHTNESS: ImageEnhance.Brightness, CONTRAST: ImageEnhance.Contrast, SATURATION: ImageEnhance.Color}
    for operation, enhancer in enhancers.items():
        views = apply(images, with_factor(whole(12, 24), operation, factors), 24)
        for image, factor, got in zip(images, factors.tolist(), views, strict=True):
            picture = Image.fromarray(image.permute(1, 2, 0).numpy())
            # cut down to whole levels (1), gray or its mean rounded (0.5 |1 - factor|)
            assert off_by(got, oracles.from_pillow(enhancer(picture).enhance(factor))) < 1.6 * LEVEL


def test_grayscale_equals_pillow_up_to_its_rounding() -> None:
    images = smooth(6, 24)
    draws = replace(whole(6, 24), grayscale=torch.tensor([True, False] * 3))
    for image, chosen, got in zip(images, draws.grayscale.tolist(), apply(images, draws, 24), strict=True):
        picture = Image.fromarray(image.permute(1, 2, 0).numpy())
        assert off_by(got, oracles.from_pillow(picture.convert("L") if chosen else picture)) < 0.51 * LEVEL


def test_hue_equals_colorsys_and_roughly_pillow() -> None:
    images, turns = smooth(9, 16), torch.linspace(-0.5, 0.5, 9)
    images[0, :, 0, :4] = torch.tensor([[0, 255, 90, 90], [0, 255, 90, 90], [0, 255, 90, 30]])  # grays, two equal tops
    views = apply(images, with_factor(whole(9, 16), HUE, turns), 16)
    for image, turn, got in zip(images, turns.tolist(), views, strict=True):
        assert off_by(got, oracles.hue(image.numpy() / 255, turn)) < 2e-6
        h, s, v = Image.fromarray(image.permute(1, 2, 0).numpy()).convert("HSV").split()
        turned = h.point([(level + round(turn * 255)) % 256 for level in range(256)])
        pillow = oracles.from_pillow(Image.merge("HSV", (turned, s, v)).convert("RGB"))
        assert off_by(got, pillow) < 12 * LEVEL  # hue has 256 levels there, 43 to a sixth of the circle


def test_every_order_of_operations_equals_the_naive_views() -> None:
    orders = torch.tensor(list(permutations(range(4)))).repeat(2, 1)
    images = smooth(24, 20)
    draws = draw(torch.full((48, 2), 20), Views(), seeded(3))
    draws = replace(draws, order=orders)
    assert draws.grayscale.any() and (draws.factors[:, HUE] == 0).any()
    got = apply(images, draws, 6)
    assert got.min() >= 0 and got.max() <= 1
    for i, (box, flip, factors, order, gray) in enumerate(
        zip(
            boxes(draws),
            draws.flip.tolist(),
            draws.factors.tolist(),
            draws.order.tolist(),
            draws.grayscale.tolist(),
            strict=True,
        )
    ):
        assert off_by(got[i], oracles.view(images[i % 24].numpy(), box, flip, factors, order, gray, 6)) < 1e-5


def test_one_channel_becomes_three_equal_ones() -> None:
    images, draws = noise(20, 1, 12, 12), draw(torch.full((20, 2), 12), Views(), seeded())
    got = apply(images, draws, 8)
    assert got.shape == (20, 3, 8, 8) and got.is_contiguous()
    assert torch.equal(got, got[:, :1].expand_as(got))
    torch.testing.assert_close(got, apply(images.expand(-1, 3, -1, -1), draws, 8), atol=5e-6, rtol=0)
    assert resize(images, torch.full((20, 2), 12), 8).shape == (20, 3, 8, 8)


# --- what is drawn


def test_boxes_are_those_of_torchvision() -> None:
    sizes = torch.tensor([[128, 128], [64, 200], [227, 227], [20, 200], [90, 3], [1, 1]]).repeat(100, 1)
    views = Views(scale=(0.08, 1.0))
    uniform = torch.rand(len(sizes), sum(COLUMNS), generator=seeded())
    areas, ratios, places = (part.tolist() for part in uniform.split_with_sizes(COLUMNS, dim=1)[:3])
    expected = [
        list(oracles.torchvision_box(height, width, views.scale, views.ratio, *row))
        for (height, width), *row in zip(sizes.tolist(), areas, ratios, places, strict=True)
    ]
    assert boxes(draws_from(uniform, sizes, views)) == expected


@pytest.mark.parametrize(
    ("size", "ratio", "box"),
    [
        ((30, 9), (3 / 4, 4 / 3), [9, 0, 12, 9]),
        ((9, 30), (3 / 4, 4 / 3), [0, 9, 9, 12]),
        ((30, 30), (1 / 2, 2), [0, 0, 30, 30]),
        ((1, 1), (1 / 5, 1 / 4), [0, 0, 1, 1]),
        ((1, 1), (4, 5), [0, 0, 1, 1]),
    ],
)
def test_where_no_attempt_fits_the_box_is_the_central_one(
    size: tuple[int, int], ratio: tuple[float, float], box: list[int]
) -> None:
    uniform = torch.full((1, sum(COLUMNS)), 0.99)
    assert boxes(draws_from(uniform, torch.tensor([size]), Views(scale=(0.99, 1.0), ratio=ratio))) == [box]


def test_the_distributions_are_those_asked_for() -> None:
    count = 20_000
    draws = draw(torch.full((count, 2), 1000), Views(scale=(0.08, 0.5)), seeded())
    top, left, height, width = draws.box.T
    assert float((height * width / 1e6).mean()) == pytest.approx(0.29, abs=0.004)
    assert float((width / height).log().mean()) == pytest.approx(0, abs=0.006)
    for place, extent in ((top, height), (left, width)):
        assert float((place / (1000 - extent)).mean()) == pytest.approx(0.5, abs=0.01)
    assert float(draws.flip.float().mean()) == pytest.approx(0.5, abs=0.015)
    assert float(draws.grayscale.float().mean()) == pytest.approx(0.2, abs=0.012)
    jittered = draws.factors[:, HUE] != 0
    assert float(jittered.float().mean()) == pytest.approx(0.8, abs=0.012)
    left_alone = draws.factors[~jittered]
    assert torch.equal(left_alone, torch.tensor([1.0, 1.0, 1.0, 0.0]).expand(len(left_alone), 4))
    applied = draws.factors[jittered]
    torch.testing.assert_close(applied.mean(0), torch.tensor([1.0, 1.0, 1.0, 0.0]), atol=0.02, rtol=0)
    torch.testing.assert_close(applied.amin(0), torch.tensor([0.2, 0.2, 0.2, -0.2]), atol=1e-3, rtol=0)
    torch.testing.assert_close(applied.amax(0), torch.tensor([1.8, 1.8, 1.8, 0.2]), atol=1e-3, rtol=0)
    assert torch.equal(draws.order.sort(1).values, torch.arange(4).expand(count, 4))
    rate_of_each = torch.unique(draws.order, dim=0, return_counts=True)[1] / count
    torch.testing.assert_close(rate_of_each, torch.full((24,), 1 / 24), atol=0.007, rtol=0)


def test_draws_are_independent_of_each_other() -> None:
    draws = draw(torch.full((20_000, 2), 1000), Views(scale=(0.08, 0.5), jitter=1), seeded())
    corner, extent = draws.box[:, :2], draws.box[:, 2:]
    place = corner / (1000 - extent)
    facts = [*place.T, extent.prod(1), extent[:, 0] / extent[:, 1], *draws.factors.T, draws.flip, draws.grayscale]
    facts += [draws.order[:, 0] == HUE, draws.order[:, 3] == CONTRAST]
    correlation = torch.corrcoef(torch.stack([fact.float() for fact in facts])).fill_diagonal_(0)
    assert correlation[:-2].abs().max() < 0.03


def test_equal_seeds_give_equal_draws_and_the_global_state_is_left_alone() -> None:
    sizes, before = torch.full((16, 2), 32), torch.get_rng_state()
    first, again, other = (draw(sizes, Views(), seeded(seed)) for seed in (7, 7, 8))
    assert torch.equal(torch.get_rng_state(), before)
    for name in vars(first):
        assert torch.equal(getattr(first, name), getattr(again, name))
    assert not torch.equal(first.box, other.box)


def test_the_largest_number_below_one_stays_in_bounds() -> None:
    sizes = torch.arange(1, 400)[:, None].repeat(1, 2)
    uniform = torch.full((len(sizes), sum(COLUMNS)), 1 - 2**-24)
    draws = draws_from(uniform, sizes, Views(scale=(0.01, 0.1)))
    assert (draws.box[:, :2] + draws.box[:, 2:] <= sizes).all()


def test_no_shape_depends_on_data() -> None:
    uniform = torch.rand(8, sum(COLUMNS), device="meta")  # tensors without data: reading any of it raises
    draws = draws_from(uniform, torch.empty(8, 2, device="meta"), Views())
    assert apply(torch.empty(4, 3, 16, 16, dtype=torch.uint8, device="meta"), draws, 8).shape == (8, 3, 8, 8)


@pytest.mark.parametrize(
    "wrong", [{"crop": 0}, {"scale": (0.5, 0.1)}, {"ratio": (0, 1)}, {"hue": 0.6}, {"flip": -0.1}, {"contrast": -1}]
)
def test_views_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Views(**wrong)  # type: ignore[arg-type]


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
def test_a_gpu_gives_the_views_of_the_cpu_without_waiting() -> None:
    images = noise(32, 3, 128, 128)
    sizes = torch.full((64, 2), 128)
    draws = draw(sizes, Views(), seeded())
    there = Draws(**{name: value.cuda() for name, value in vars(draws).items()})
    on_gpu, sizes_on_gpu, generator = images.cuda(), sizes.cuda(), torch.Generator("cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        draw(sizes_on_gpu, Views(), generator)
        got = apply(on_gpu, there, 32)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.testing.assert_close(got.cpu(), apply(images, draws, 32), atol=0.02, rtol=0)
