import numpy as np
import pytest
import torch
from torch import Tensor

from fedgala.data.domain import Dataset
from fedgala.data.shapes import CLASSES, DOMAINS, SHAPES, _pose, make_shapes
from fedgala.errors import ConfigError


@pytest.fixture(scope="module")
def shapes() -> Dataset:
    return make_shapes(24, size=32)


def flat_share(images: Tensor) -> float:
    """How many pixels equal their right neighbour."""
    return (images[..., 1:] == images[..., :-1]).all(1).float().mean().item()


def colourfulness(images: Tensor) -> float:
    """The mean spread between the channels of a pixel, of 255."""
    return (images.amax(1).float() - images.amin(1).float()).mean().item()


def test_it_has_the_layout_of_a_data_set() -> None:
    data = make_shapes(2, size=48)
    assert (data.name, data.classes, data.names) == ("shapes", CLASSES, DOMAINS)
    assert DOMAINS == ("art_painting", "cartoon", "photo", "sketch") and len(CLASSES) == 8
    for domain in data.domains:
        assert domain.labels is not None
        assert domain.images.shape == (16, 3, 48, 48) and domain.images.dtype == torch.uint8
        assert domain.sizes.dtype == torch.int32 and torch.equal(domain.sizes, torch.full((16, 2), 48))
        assert domain.labels.dtype == torch.int64 and domain.labels.tolist() == 2 * list(range(8))


def test_the_same_seed_draws_the_same_and_another_seed_another() -> None:
    first, again, other = make_shapes(1, 32, seed=3), make_shapes(1, 32, seed=3), make_shapes(1, 32, seed=4)
    assert first.fingerprint == again.fingerprint != other.fingerprint
    for a, b, c in zip(first.domains, again.domains, other.domains, strict=True):
        assert torch.equal(a.images, b.images)
        assert not (a.images == c.images).flatten(1).all(1).any()


def test_fewer_images_are_the_first_of_more() -> None:
    few, many = make_shapes(4, 32), make_shapes(8, 32)
    assert few.fingerprint != many.fingerprint
    for a, b in zip(few.domains, many.domains, strict=True):
        assert torch.equal(a.pictures(), b.images[: len(a)])


def test_no_image_comes_twice(shapes: Dataset) -> None:
    images = torch.cat([domain.images for domain in shapes.domains]).flatten(1)
    assert len(torch.unique(images, dim=0)) == len(images)


@pytest.mark.parametrize("name", DOMAINS)
def test_mean_colour_hardly_tells_the_class(shapes: Dataset, name: str) -> None:
    labels = shapes[name].labels
    assert labels is not None
    colour = shapes[name].images.float().mean((2, 3))
    half = len(colour) // 2
    centres = torch.stack([colour[:half][labels[:half] == label].mean(0) for label in range(8)])
    nearest = torch.cdist(colour[half:], centres).argmin(1)
    assert (nearest == labels[half:]).float().mean() < 0.3  # chance is 0.125


def test_domains_look_different(shapes: Dataset) -> None:
    flat = {domain.name: flat_share(domain.images) for domain in shapes.domains}
    colour = {domain.name: colourfulness(domain.images) for domain in shapes.domains}
    assert colour["sketch"] == 0 and shapes["sketch"].images.float().mean() > 0.8 * 255
    assert min(flat["sketch"], flat["cartoon"]) > 0.3
    assert max(flat["photo"], flat["art_painting"]) < 0.1
    assert colour["cartoon"] > colour["art_painting"] > 40
    assert colour["photo"] > 40


@pytest.mark.parametrize("name", CLASSES)
def test_a_thing_is_in_the_picture_and_about_as_large_as_any_other(name: str) -> None:
    areas = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        x, y, _ = _pose(rng, 48)
        parts = SHAPES[name](x, y, rng)
        assert all(distance.dtype == np.float32 and tone in (1, 2, 3, 4) for tone, distance in parts)
        areas.append((np.min([distance for _, distance in parts], axis=0) < 0).mean())
    assert 0.1 < np.mean(areas) < 0.5


@pytest.mark.parametrize("arguments", [{"images_per_class": 0}, {"size": 8}, {"seed": -1}])
def test_what_cannot_be_drawn_is_refused(arguments: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(arguments))} is"):
        make_shapes(**arguments)
