"""SimSiam (Chen and He, CVPR 2021): from one view predict the other's projection, which gets no gradient.

BYOL without a target network: the smallest method with a predictor.
"""

from torch import nn

from fedgala.ssl.base import Batch, Outcome, SSLMethod, WithPredictor
from fedgala.ssl.losses import negative_cosine


def loss(module: nn.Module, batch: Batch) -> Outcome:
    """The mean negative cosine of each view's prediction and the other's projection."""
    assert isinstance(module, WithPredictor)
    projections = module(batch.views)
    first, second = projections.detach().chunk(2)
    from_first, from_second = module.predictor(projections).chunk(2)
    value = (negative_cosine(from_first, second) + negative_cosine(from_second, first)) / 2
    return Outcome(value, projections)


SIMSIAM = SSLMethod(WithPredictor, loss, predictor=True)
