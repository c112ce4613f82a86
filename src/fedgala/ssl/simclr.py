"""SimCLR (Chen et al., ICML 2020): each view must find its partner among all other views of the batch."""

from torch import nn

from fedgala.ssl.base import Batch, Outcome, Projected, SSLMethod
from fedgala.ssl.losses import nt_xent


def loss(module: nn.Module, batch: Batch) -> Outcome:
    """NT-Xent of both views of all images."""
    assert isinstance(module, Projected)
    projections = module(batch.views)
    return Outcome(nt_xent(projections, module.recipe.temperature), projections)


SIMCLR = SSLMethod(Projected, loss)
