"""MoCo (He et al., CVPR 2020; v2: Chen et al., 2020): a view finds the other's key among a queue of older keys.

Keys come from a target network that follows the online one. Queue and target are a client's own and never averaged: an
average of queues is no queue, and an average of their pointers makes them stick. v1's projector is one layer
(``ssl.head = linear``), v2's has two. All keys of a batch pass the target's norms together, as on one device they do.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedgala.ssl.base import Batch, Outcome, Recipe, SSLMethod, WithTarget, follow_, join_
from fedgala.ssl.losses import info_nce


class MoCo(WithTarget):
    """Encoder, projector, their target, and a ring of `queue` negatives of unit length."""

    queue: Tensor
    place: Tensor
    keys: Tensor | None = None

    def __init__(self, encoder: nn.Module, recipe: Recipe):
        super().__init__(encoder, recipe)
        self.register_buffer("queue", F.normalize(torch.randn(recipe.queue, recipe.output), dim=1))
        self.register_buffer("place", torch.zeros(1))  # where the next key goes; a float, to lie among floats


def loss(module: nn.Module, batch: Batch) -> Outcome:
    """InfoNCE of the first views against the keys of the second, with the queue as negatives."""
    assert isinstance(module, MoCo)
    first, second = batch.views.chunk(2)
    queries = module(first)
    module.keys = F.normalize(module.aim(second).float(), dim=1)
    return Outcome(info_nce(queries, module.keys, module.queue, module.recipe.temperature), queries)


@torch.no_grad()
def enqueue_(queue: Tensor, place: Tensor, keys: Tensor) -> None:
    """Put the keys where the oldest are, round the ring; of more keys than it holds, the last."""
    size = len(queue)
    keys = keys[-size:]
    index = (place.long() + torch.arange(len(keys), device=keys.device)) % size
    queue.index_copy_(0, index, keys.to(queue.dtype))
    place.add_(len(keys)).remainder_(size)


def after_step(module: nn.Module) -> None:
    """The target follows, and the batch's keys join the queue."""
    assert isinstance(module, MoCo) and module.keys is not None
    follow_(module)
    enqueue_(module.queue, module.place, module.keys)


MOCO = SSLMethod(MoCo, loss, begin=join_, after_step=after_step, home=("target", "queue", "place"))
