"""What training sees of data: domains of uint8 images of any sizes, with labels only where there are some."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class DomainData:
    """The images of one domain.

    Pictures of different sizes share one canvas of ``(S, S)`` pixels, each at its top left corner; `sizes` says how far
    each one reaches, and nothing outside of it is ever read.
    """

    name: str
    images: Tensor  # uint8 (N, C, S, S), C is 1 or 3
    sizes: Tensor  # int32 (N, 2), height and width of each picture
    labels: Tensor | None = None  # int64 (N,), indices into Dataset.classes

    def __len__(self) -> int:
        return len(self.images)

    def to(self, device: torch.device) -> "DomainData":
        """The same domain with its tensors on `device`."""
        labels = None if self.labels is None else self.labels.to(device)
        return replace(self, images=self.images.to(device), sizes=self.sizes.to(device), labels=labels)

    def take(self, index: Tensor, name: str | None = None) -> "DomainData":
        """The images at `index`, in that order; under a new name, if one is given."""
        labels = None if self.labels is None else self.labels[index]
        return DomainData(name or self.name, self.images[index], self.sizes[index], labels)


@dataclass(frozen=True)
class Dataset:
    """Domains that share one list of classes (empty where nothing is labelled)."""

    name: str
    domains: tuple[DomainData, ...]  # sorted by name
    classes: tuple[str, ...]
    fingerprint: str  # hex; equal where pixels, order, domains and labels are equal

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the domains, in order."""
        return tuple(domain.name for domain in self.domains)

    def __getitem__(self, name: str) -> DomainData:
        for domain in self.domains:
            if domain.name == name:
                return domain
        raise KeyError(name)

    def limited(self, limit: int) -> "Dataset":
        """The first `limit` images of each domain."""
        domains = tuple(domain.take(torch.arange(min(limit, len(domain)))) for domain in self.domains)
        return replace(self, domains=domains, fingerprint=f"{self.fingerprint}-{limit}")

    def select(self, names: Sequence[str]) -> "Dataset":
        """The same data set with only the domains in `names`."""
        return replace(self, domains=tuple(domain for domain in self.domains if domain.name in names))
