"""Models that a client compares itself with and does not train: the global one, and its own of the round before."""

from copy import deepcopy

import torch
from torch import Tensor, nn

from fedgala.parameters import FlatModel


class FrozenModel:
    """A copy of a module's encoder and projector, with weights that are set once a round; norms in evaluation mode."""

    def __init__(self, module: nn.Module):
        parts = [deepcopy(module.get_submodule(name)) for name in ("encoder", "projector")]
        copy = nn.Sequential(*parts).requires_grad_(False).eval()
        self.parameters = sum(1 for _ in copy.parameters())
        self.model = FlatModel(copy, home=("0", "1"))

    def load_(self, weights: Tensor, statistics: Tensor) -> None:
        """Take over flat vectors of a model: they begin with what encoder and projector have."""
        layout = self.model.private_layout
        length = layout.first(self.parameters).length
        self.model.private[:length].copy_(weights[:length])
        self.model.private[length:].copy_(statistics[: layout.length - length])

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        """(N, output) projections."""
        projections: Tensor = self.model.module(images)
        return projections
