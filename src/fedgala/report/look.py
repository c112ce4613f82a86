"""A closer look at what a finished run's encoder makes of the pictures, where they are at hand.

Nothing here is in the records: it is computed when a page is written, from the encoder and the data. The probes are the
last evaluation's, split for split, so their accuracy is the recorded one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from fedgala.api import choose_device, split_target
from fedgala.data.domain import DomainData
from fedgala.data.source import open_dataset
from fedgala.errors import DataError
from fedgala.evaluation import encode, probe_tables
from fedgala.observe import Observer
from fedgala.run import Run

BANK = 1000  # pictures of a domain, evenly spread, among which neighbours are looked for and that maps show


@dataclass(frozen=True)
class Look:
    """The domains of a run's data set, and the encoder's features of them."""

    run: Run
    sources: tuple[DomainData, ...]
    target: DomainData | None
    classes: tuple[str, ...]
    features: Mapping[str, Tensor]  # (N, F) of each domain: all of the unseen one, `BANK` of the others

    @property
    def domains(self) -> tuple[DomainData, ...]:
        """All domains, the unseen one last."""
        return (*self.sources, *([self.target] if self.target else []))

    @cached_property
    def confusion(self) -> Mapping[float, Tensor]:
        """(S, C, C) per share of labels: the recorded probes' answers on the unseen domain, rows the true class."""
        if self.target is None or self.target.labels is None:
            return {}
        features, labels, config = self.features[self.target.name], self.target.labels, self.run.config
        return {
            ratio: probe_tables(features, labels, ratio, config.probe, len(self.classes), config.seed, "encoder")
            for ratio in config.probe.ratios
        }


def look(run: Run, data: str | None, device: str, watcher: Observer) -> Look:
    """Encode the pictures of a finished run; `data` says where they are now, if they have moved.

    Raises:
        FedgalaError: the run has no encoder yet, or its pictures are not to be had.
    """
    if not run.finished:
        raise DataError("the run is not finished: there is no encoder yet")
    config = run.config.data if data is None else replace(run.config.data, path=data)
    dataset = open_dataset(config, watcher)
    sources, target = split_target(dataset, config.target, config.sources)
    watcher.working("looking at the pictures")
    place = choose_device(device)
    encoder = run.encoder.to(place)
    thinned = tuple(thin(source, BANK) for source in sources)
    shown = (*thinned, *([target] if target else []))
    features = {domain.name: encode(encoder, domain.to(place), encoder.crop).cpu() for domain in shown}
    return Look(run, thinned, target, dataset.classes, features)


def thin(domain: DomainData, count: int) -> DomainData:
    """At most `count` pictures of a domain, evenly spread."""
    return domain if len(domain) <= count else domain.take(spread(len(domain), count))


def spread(length: int, count: int) -> Tensor:
    """At most `count` indices below `length`, evenly spread."""
    return torch.linspace(0, length - 1, min(length, count)).long()


def principal(features: Tensor) -> tuple[Tensor, Tensor]:
    """(N, 2) coordinates along the first two principal components, and the share of the variance that each holds.

    Each axis points to where its largest weight is positive: the sign of a component is nobody's choice otherwise.
    """
    centred = features.double() - features.double().mean(0)
    _, values, directions = torch.linalg.svd(centred, full_matrices=False)
    largest = directions[:2].gather(1, directions[:2].abs().argmax(1, keepdim=True))
    total = (values**2).sum()
    shares = values[:2] ** 2 / torch.where(total > 0, total, 1.0)
    return centred @ (directions[:2] * largest.sign()).T, shares


def nearest(queries: Tensor, bank: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """(Q, count) indices into `bank` of the largest cosines with each query, largest first, and those cosines."""
    similarity = torch.nn.functional.normalize(queries) @ torch.nn.functional.normalize(bank).T
    cosines, index = similarity.topk(min(count, len(bank)), dim=1)
    return index, cosines
