"""A model's tensors as one flat vector with named segments.

Updates, cosines, masks, optimizers and aggregation are then plain vector algebra. Each tensor begins at a multiple of
`BLOCK`, the rest of its last block is zero padding, so a sum over a tensor is a sum over whole blocks and a value per
tensor spreads to a value per block. Names come back at the edges: checkpoints, exports and the wire.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

BLOCK = 1024
UNITS = ("tensor", "layer", "model")


@dataclass(frozen=True)
class Segment:
    """One named tensor inside the flat vector."""

    name: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    numel: int

    @property
    def layer(self) -> str:
        """The module that owns the tensor: a layer's weight and bias, or a norm's gain and shift, belong together."""
        return self.name.rpartition(".")[0]

    @property
    def blocks(self) -> int:
        """How many blocks the tensor takes, the padded one included."""
        return -(-self.numel // BLOCK)


@dataclass(frozen=True)
class Layout:
    """Where each named tensor lies in a flat vector of `length` numbers on `device`."""

    segments: tuple[Segment, ...]
    device: torch.device

    @classmethod
    def of(cls, tensors: Iterable[tuple[str, Tensor]], device: torch.device | None = None) -> "Layout":
        """A layout in the order of `tensors`; convolutions lie channels last, which is up to twice as fast."""
        segments: list[Segment] = []
        offset = 0
        for name, tensor in tensors:
            device = device or tensor.device
            order = torch.channels_last if tensor.dim() == 4 else torch.contiguous_format
            stride = torch.empty(tensor.shape, memory_format=order, device="meta").stride()
            segments.append(Segment(name, tuple(tensor.shape), tuple(stride), offset, tensor.numel()))
            offset += segments[-1].blocks * BLOCK
        return cls(tuple(segments), device or torch.device("cpu"))

    def first(self, count: int) -> "Layout":
        """The layout of the first `count` segments, which a vector of this layout begins with."""
        return Layout(self.segments[:count], self.device)

    @cached_property
    def length(self) -> int:
        """The padded length of the flat vector."""
        return sum(segment.blocks for segment in self.segments) * BLOCK

    @cached_property
    def segment_of_block(self) -> Tensor:
        """(blocks,) the index of the segment that each block belongs to."""
        blocks = torch.tensor([segment.blocks for segment in self.segments], dtype=torch.long, device=self.device)
        return torch.repeat_interleave(torch.arange(len(self.segments), device=self.device), blocks)

    def zeros(self) -> Tensor:
        """A flat vector of zeros."""
        return torch.zeros(self.length, device=self.device)

    def view(self, flat: Tensor, segment: Segment) -> Tensor:
        """The tensor of `segment` as a view into `flat`."""
        return flat.as_strided(segment.shape, segment.stride, flat.storage_offset() + segment.offset)

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """All tensors by name, as views into `flat`."""
        return {segment.name: self.view(flat, segment) for segment in self.segments}

    def flatten(self, named: Mapping[str, Tensor]) -> Tensor:
        """The flat vector that holds `named`; names and shapes must be exactly those of the layout.

        Raises:
            ValueError: a name is missing or unknown, or a shape differs.
        """
        odd = set(named).symmetric_difference(segment.name for segment in self.segments)
        if odd:
            raise ValueError(f"tensors missing or unknown: {', '.join(sorted(odd)[:3])}")
        flat = self.zeros()
        for segment in self.segments:
            if tuple(named[segment.name].shape) != segment.shape:
                raise ValueError(f"{segment.name} is {tuple(named[segment.name].shape)}, expected {segment.shape}")
            self.view(flat, segment).copy_(named[segment.name])
        return flat

    def sums(self, flat: Tensor) -> Tensor:
        """(segments,) the sum of `flat` over each segment."""
        per_block = flat.view(-1, BLOCK).sum(1)
        return flat.new_zeros(len(self.segments)).index_add_(0, self.segment_of_block, per_block)

    def spread(self, per_segment: Tensor) -> Tensor:
        """(blocks, 1) each segment's value at every one of its blocks: broadcasts against ``flat.view(-1, BLOCK)``."""
        return per_segment[self.segment_of_block, None]

    def units(self, unit: str) -> tuple[Tensor, int]:
        """(segments,) the index of the unit that each segment belongs to, and how many units there are.

        A unit is what alignment judges as a whole: every tensor by itself, the tensors of one layer, or the model.
        """
        keys = {
            "tensor": [segment.name for segment in self.segments],
            "layer": [segment.layer for segment in self.segments],
            "model": ["" for _ in self.segments],
        }[unit]
        order = {key: index for index, key in enumerate(dict.fromkeys(keys))}
        return torch.tensor([order[key] for key in keys], device=self.device), len(order)


@dataclass(frozen=True)
class Layouts:
    """Where the tensors of a model lie in each of its vectors."""

    weights: Layout  # the trainable parameters that travel
    statistics: Layout  # the norms' running means and variances that travel
    trainable: Layout  # all trainable parameters: it begins with those of `weights`
    private: Layout  # what stays with a client and has no gradient: target networks, queues


class FlatModel:
    """A module whose parameters, gradients, statistics and private tensors are views of flat vectors.

    Whatever moves the vectors moves the module. Sub-networks and buffers named in `home` stay with their client: their
    trainable parameters lie at the end of `weights`, so that what travels is a slice of it, and whatever else they have
    lies in `private`. Of all other buffers the floating ones (running means and variances of the norms) are
    `statistics`; counters stay in the module and are never averaged.
    """

    def __init__(self, module: nn.Module, home: Sequence[str] = ()):
        self.module = module
        parameters, buffers = list(module.named_parameters()), list(module.named_buffers())
        floating = [(name, buffer) for name, buffer in buffers if buffer.is_floating_point()]

        def stays(name: str) -> bool:
            return name.partition(".")[0] in home

        trained = [(name, parameter) for name, parameter in parameters if parameter.requires_grad]
        travelling = [(name, parameter) for name, parameter in trained if not stays(name)]
        fixed = [(name, parameter) for name, parameter in parameters if not parameter.requires_grad]
        assert all(stays(name) for name, _ in fixed), "a parameter without gradient belongs to a network in `home`"
        self.layout = Layout.of([*travelling, *((name, it) for name, it in trained if stays(name))])
        self.shared = self.layout.first(len(travelling))
        device = self.layout.device
        self.statistics_layout = Layout.of([(name, it) for name, it in floating if not stays(name)], device)
        self.private_layout = Layout.of([*fixed, *((name, it) for name, it in floating if stays(name))], device)
        self.weights, self.gradients = self.layout.zeros(), self.layout.zeros()
        self.statistics, self.private = self.statistics_layout.zeros(), self.private_layout.zeros()
        self._bind()

    @property
    def layouts(self) -> Layouts:
        """The layouts of all its vectors."""
        return Layouts(self.shared, self.statistics_layout, self.layout, self.private_layout)

    def _bind(self) -> None:
        for segment in self.layout.segments:
            parameter = self.module.get_parameter(segment.name)
            parameter.data = _moved(parameter, self.layout, self.weights, segment)
            parameter.grad = self.layout.view(self.gradients, segment)
        parameters = dict(self.module.named_parameters())
        for layout, vector in ((self.statistics_layout, self.statistics), (self.private_layout, self.private)):
            for segment in layout.segments:
                owner, _, leaf = segment.name.rpartition(".")
                if segment.name in parameters:
                    parameters[segment.name].data = _moved(parameters[segment.name], layout, vector, segment)
                else:
                    buffer = self.module.get_buffer(segment.name)
                    setattr(self.module.get_submodule(owner), leaf, _moved(buffer, layout, vector, segment))


def _moved(tensor: Tensor, layout: Layout, flat: Tensor, segment: Segment) -> Tensor:
    """The place of `segment` in `flat`, which takes over the values of `tensor`."""
    view = layout.view(flat, segment)
    view.copy_(tensor.detach())
    return view
