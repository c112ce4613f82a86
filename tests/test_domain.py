"""Domains: rows of shared images, and pixels that stay where they are."""

import pytest
import torch

from conftest import TINY, random_domain
from fedgala.client import Trainer
from fedgala.config import RunConfig
from fedgala.data import domain as domain_module
from fedgala.data.domain import DomainData, gather, place
from fedgala.data.partition import partition
from fedgala.messages import Broadcast

CPU, ELSEWHERE = torch.device("cpu"), torch.device("meta")


def numbered(name: str, count: int, first: int = 0) -> DomainData:
    """Pictures of one pixel, whose value is their number."""
    pixels = torch.arange(first, first + count, dtype=torch.uint8).view(count, 1, 1, 1)
    return DomainData(name, pixels, torch.ones(count, 2, dtype=torch.int32), torch.arange(count))


def values(domain: DomainData) -> list[int]:
    return domain.pictures().flatten().tolist()


def test_a_part_of_a_part_names_the_right_rows_and_copies_no_pixel() -> None:
    whole = numbered("a", 6)
    part = whole.take(torch.tensor([5, 3, 1])).take(torch.tensor([2, 0]), "b")
    assert (part.name, values(part), len(part)) == ("b", [1, 5], 2)
    assert part.labels is not None and part.labels.tolist() == [1, 5]
    assert part.images is whole.images
    assert part.pictures(torch.tensor([1])).flatten().tolist() == [5]
    assert part.picture(1).flatten().tolist() == [5, 5, 5]  # gray as three channels


def test_a_picture_is_cut_out_of_its_canvas() -> None:
    canvas = torch.arange(9, dtype=torch.uint8).view(1, 1, 3, 3)
    domain = DomainData("a", canvas, torch.tensor([[2, 1]], dtype=torch.int32))
    assert domain.picture(0)[0].tolist() == [[0], [3]]


@pytest.mark.parametrize("shared", [True, False])
def test_domains_held_together_share_their_images_if_they_did_before(shared: bool) -> None:
    base = numbered("all", 6)
    first, second = base.take(torch.tensor([0, 1, 2]), "a"), base.take(torch.tensor([3, 4, 5]), "b")
    if not shared:
        second = numbered("b", 3, first=3)
    (client,) = partition([first, second], 1, "iid", 1.0, torch.Generator())
    assert (client.name, values(client), client.images is base.images) == ("a+b", [0, 1, 2, 3, 4, 5], shared)


@pytest.mark.parametrize(("room", "fits"), [(5, True), (4, False)])
def test_pixels_move_to_the_device_only_if_all_fit(room: int, fits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domain_module, "CHUNK", 2)
    base = numbered("all", 6)
    parts = (base.take(torch.tensor([5, 1, 3])), base.take(torch.tensor([0, 2])))
    placed, there = place(parts, ELSEWHERE, room)
    assert there is fits and sum(part.num_bytes for part in parts) == 5
    assert all(part.sizes.device == ELSEWHERE for part in placed)
    assert all((part.images.device == ELSEWHERE) is fits for part in placed)
    assert [len(part.images) for part in placed] == ([3, 2] if fits else [6, 6])


def test_pixels_are_gathered_in_pieces_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domain_module, "CHUNK", 2)
    base = numbered("all", 6)
    assert gather(base.images, torch.tensor([5, 1, 3]), CPU).flatten().tolist() == [5, 1, 3]


def test_training_does_not_care_how_a_domain_is_kept() -> None:
    config = RunConfig.from_dict(TINY)
    own = random_domain("a")
    base = DomainData("both", torch.cat([own.images.flip(0), own.images]), own.sizes.repeat(2, 1), None)
    rows = base.take(torch.arange(20, 40), "a")
    ends = []
    for data in (own, rows):
        trainer = Trainer(config, CPU)
        start = Broadcast(1, trainer.model.weights.clone(), trainer.model.statistics.clone(), None)
        ends.append(trainer.train_client(start, None, data)[0].update)
    assert torch.equal(*ends) and ends[0].count_nonzero()
