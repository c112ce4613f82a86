"""DARLING (Zhang et al., CVPR 2022): negatives come from domains that resemble an image's own.

MoCo with a queue for each domain and a mixture over them: -log sum_d w_d(x) p_d(x), where p_d is the probability of the
key among the negatives of domain d, and w_d(x) how much x looks as if it came from there. Here w is what a linear layer
says that learns to tell the domains apart, without a gradient into the features: an image of domain d has most of its
negatives there, and some from domains that are mistaken for it. No official code was found; this is how we read the
paper. Only a client with several domains has a choice of negatives, as a centralised run does.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedgala.ssl.base import Batch, Outcome, Recipe, SSLMethod, WithTarget, follow_, join_
from fedgala.ssl.losses import domain_mixture


class Darling(WithTarget):
    """Encoder, projector, their target, a ring of `queue` negatives per domain, and what tells domains apart."""

    queues: Tensor
    places: Tensor
    fresh: tuple[Tensor, Tensor] | None = None

    def __init__(self, encoder: nn.Module, recipe: Recipe):
        super().__init__(encoder, recipe)
        shape = (recipe.domains, recipe.queue, recipe.output)
        self.register_buffer("queues", F.normalize(torch.randn(shape), dim=2))
        self.register_buffer("places", torch.zeros(recipe.domains))
        self.similarity = nn.Linear(recipe.features, recipe.domains)


def loss(module: nn.Module, batch: Batch) -> Outcome:
    """The mixture's loss, and the cross-entropy of the layer that weighs the domains."""
    assert isinstance(module, Darling) and batch.domains is not None
    first, second = batch.views.chunk(2)
    features = module.encoder(first)
    queries, likeness = module.projector(features), module.similarity(features.detach()).float()
    keys = F.normalize(module.aim(second).float(), dim=1)
    module.fresh = keys, batch.domains
    weights = likeness.detach().log_softmax(1)
    mixture = domain_mixture(queries, keys, module.queues, weights, module.recipe.temperature)
    return Outcome(mixture + F.cross_entropy(likeness, batch.domains), queries)


@torch.no_grad()
def enqueue_(queues: Tensor, places: Tensor, keys: Tensor, domains: Tensor) -> None:
    """Put each key into the ring of its domain, where the oldest is; no host synchronisation, so counted by sums.

    Of more keys of one domain than a ring holds, the last ones stay.
    """
    num_domains, size, _ = queues.shape
    member = F.one_hot(domains, num_domains)
    rank = (member.cumsum(0) * member).sum(1) - 1  # how many keys of its domain came before
    total = member.sum(0)
    slot = (places.long()[domains] + rank) % size
    stays = rank >= total[domains] - size
    place = torch.where(stays, domains * size + slot, num_domains * size)
    flat = torch.cat([queues.flatten(0, 1), queues.new_zeros(1, queues.shape[2])])  # one row more, for what goes
    queues.copy_(flat.index_copy_(0, place, keys.to(queues.dtype))[:-1].view_as(queues))
    places.add_(total).remainder_(size)


def after_step(module: nn.Module) -> None:
    """The target follows, and the batch's keys join the queues of their domains."""
    assert isinstance(module, Darling) and module.fresh is not None
    follow_(module)
    enqueue_(module.queues, module.places, *module.fresh)


DARLING = SSLMethod(
    Darling, loss, begin=join_, after_step=after_step, home=("target", "queues", "places", "similarity"),
    needs=frozenset({"domains"}),
)  # fmt: skip
