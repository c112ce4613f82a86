"""What training sees of data: domains of uint8 images of any sizes, with labels only where there are some."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

CHUNK = 4096  # pictures that move to another device at a time


@dataclass(frozen=True)
class DomainData:
    """The images of one domain.

    Pictures of different sizes share one canvas of ``(S, S)`` pixels, each at its top left corner; `sizes` says how far
    each one reaches, and nothing outside of it is ever read. Domains and clients may share `images`, each with its own
    `rows`, so that dealing pictures out copies none. Pixels may lie elsewhere than the rest, in a memory-mapped file
    that is larger than the memory: `pictures` brings those that are asked for.
    """

    name: str
    images: Tensor  # uint8 (M, C, S, S), C is 1 or 3
    sizes: Tensor  # int32 (N, 2), height and width of each picture
    labels: Tensor | None = None  # int64 (N,), indices into Dataset.classes
    rows: Tensor | None = None  # int64 (N,), which of `images` are the domain's; all of them, in order, where None
    parts: Tensor | None = None  # int64 (N,), which of the domains that were put together a picture is from

    def __len__(self) -> int:
        return len(self.sizes)

    def part_of(self, index: Tensor) -> Tensor:
        """Int64 (n,) which of the client's domains the pictures at `index` are from."""
        return torch.zeros_like(index) if self.parts is None else self.parts[index]

    def pictures(self, index: Tensor | None = None) -> Tensor:
        """Uint8 (n, C, S, S) the pictures at `index`, or all, on the device of `sizes`."""
        if index is None:
            index = torch.arange(len(self), device=self.sizes.device)
        chosen = index if self.rows is None else self.rows[index]
        return self.images[chosen.to(self.images.device)].to(self.sizes.device)

    def picture(self, index: int) -> Tensor:
        """Uint8 (3, height, width) one picture, without what is beside it on the canvas."""
        height, width = self.sizes[index].tolist()
        row = index if self.rows is None else int(self.rows[index])
        return self.images[row, :, :height, :width].expand(3, -1, -1)

    def to(self, device: torch.device, pixels: bool = True) -> "DomainData":
        """The same domain on `device`; without `pixels` those stay where they are, and are brought batch by batch."""
        labels = None if self.labels is None else self.labels.to(device)
        rows = None if self.rows is None else self.rows.to(device)
        parts = None if self.parts is None else self.parts.to(device)
        moved = replace(self, sizes=self.sizes.to(device), labels=labels, rows=rows, parts=parts)
        if not pixels or self.images.device == device:
            return moved
        rows = torch.arange(len(self)) if self.rows is None else self.rows.to(self.images.device)
        return replace(moved, images=gather(self.images, rows, device), rows=None)

    def take(self, index: Tensor, name: str | None = None) -> "DomainData":
        """The images at `index`, in that order; under a new name, if one is given."""
        labels = None if self.labels is None else self.labels[index]
        rows = index if self.rows is None else self.rows[index]
        parts = None if self.parts is None else self.parts[index]
        return DomainData(name or self.name, self.images, self.sizes[index], labels, rows, parts)

    @property
    def num_bytes(self) -> int:
        """What the domain's own pixels take."""
        return len(self) * self.images[:1].numel()


def gather(images: Tensor, rows: Tensor, device: torch.device) -> Tensor:
    """``images[rows]`` on `device`, a piece at a time: the memory beside the device holds no second copy."""
    gathered = torch.empty(len(rows), *images.shape[1:], dtype=images.dtype, device=device)
    for start in range(0, len(rows), CHUNK):
        part = rows[start : start + CHUNK]
        gathered[start : start + len(part)] = images[part].to(device)
    return gathered


def place(domains: Sequence[DomainData], device: torch.device, room: int) -> tuple[tuple[DomainData, ...], bool]:
    """`domains` on `device`, and whether their pixels are there too: all of them, where they fit into `room` bytes."""
    fits = sum(domain.num_bytes for domain in domains) <= room
    return tuple(domain.to(device, pixels=fits) for domain in domains), fits


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
