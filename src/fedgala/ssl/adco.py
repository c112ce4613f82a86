"""AdCo (Hu et al., CVPR 2021): negatives are free vectors that move against the encoder, towards what it confuses.

The encoder descends InfoNCE, the negatives ascend it: each moves by eta / (tau B) times the sum of the queries,
weighted by the chance that a query takes it for its key, and keeps unit length. The negatives have a rate and a
temperature of their own; keys come from a target network.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedgala.ssl.base import Batch, Outcome, Recipe, SSLMethod, WithTarget, follow_, join_
from fedgala.ssl.losses import adversarial_step, info_nce


class AdCo(WithTarget):
    """Encoder, projector, their target, and `queue` adversarial negatives of unit length."""

    negatives: Tensor
    seen: tuple[Tensor, Tensor] | None = None

    def __init__(self, encoder: nn.Module, recipe: Recipe):
        super().__init__(encoder, recipe)
        self.register_buffer("negatives", F.normalize(torch.randn(recipe.queue, recipe.output), dim=1))


def loss(module: nn.Module, batch: Batch) -> Outcome:
    """InfoNCE of the first views against the keys of the second, with the adversaries as negatives."""
    assert isinstance(module, AdCo)
    first, second = batch.views.chunk(2)
    queries = module(first)
    module.seen = queries.detach(), module.aim(second)
    return Outcome(info_nce(queries, module.seen[1], module.negatives, module.recipe.temperature), queries)


@torch.no_grad()
def after_step(module: nn.Module) -> None:
    """The target follows; the negatives climb."""
    assert isinstance(module, AdCo) and module.seen is not None
    follow_(module)
    climb = adversarial_step(*module.seen, module.negatives, module.recipe.adversary_temperature)
    module.negatives.copy_(F.normalize(module.negatives + module.recipe.adversary * climb, dim=1))


ADCO = SSLMethod(AdCo, loss, begin=join_, after_step=after_step, home=("target", "negatives"))
