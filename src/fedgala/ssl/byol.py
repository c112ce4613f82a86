"""BYOL (Grill et al., NeurIPS 2020): from one view predict what a slowly moving target sees in the other.

There are no negatives; what keeps features from collapsing are the predictor and the target's momentum. Both of the
symmetric loss's terms are summed, not averaged. The target is a client's own; the predictor, unless it travels, too.
"""

from torch import nn

from fedgala.ssl.base import Batch, Outcome, Recipe, SSLMethod, WithTarget, follow_, join_, mlp
from fedgala.ssl.losses import regression


class BYOL(WithTarget):
    """Encoder, projector and predictor, and a target for the first two."""

    def __init__(self, encoder: nn.Module, recipe: Recipe):
        super().__init__(encoder, recipe)
        self.predictor = mlp(recipe.output, recipe.predictor, recipe.output)


def loss(module: nn.Module, batch: Batch) -> Outcome:
    """The squared distance of each view's prediction from the other's target, at unit length, both ways."""
    assert isinstance(module, BYOL)
    projections = module(batch.views)
    first, second = module.predictor(projections).chunk(2)
    aim_first, aim_second = module.aim(batch.views).chunk(2)
    return Outcome(regression(first, aim_second) + regression(second, aim_first), projections)


BYOL_METHOD = SSLMethod(BYOL, loss, begin=join_, after_step=follow_, home=("target",), predictor=True)
