"""FedX (Han et al., ECCV 2022): what views mean is distilled between each other, and from the global model.

Locally, views attract as in SimCLR and must relate alike to a batch of other images. Globally, predictions from the
local projections attract the frozen global model's projections, and must relate to the others as those do.
"""

import torch
from torch import Tensor, nn

from fedgala.ssl.base import Batch, Outcome, SSLMethod, WithPredictor
from fedgala.ssl.losses import nt_xent_between, relation


def loss(module: nn.Module, batch: Batch) -> Outcome:
    """NT(z1, z2) + NT(p1, global z2), and for both the divergence of the views' relations to the others."""
    assert isinstance(module, WithPredictor) and batch.others is not None and batch.frozen is not None
    temperature, sharpness, count = module.recipe.temperature, module.recipe.relation, len(batch.views)
    everything = module(_joined(batch))
    projections, others = everything[:count], everything[count:]
    first, second = projections.chunk(2)
    ahead_first, ahead_second = module.predictor(projections).chunk(2)
    known = batch.frozen(_joined(batch))
    known_second, known_others = known[count // 2 : count], known[count:]
    local = nt_xent_between(first, second, temperature) + relation(first, second, others, sharpness)
    distilled = nt_xent_between(ahead_first, known_second, temperature)
    distilled = distilled + relation(ahead_first, ahead_second, known_others, sharpness)
    return Outcome(local + distilled, projections)


def _joined(batch: Batch) -> Tensor:
    assert batch.others is not None
    return torch.cat([batch.views, batch.others]).contiguous(memory_format=torch.channels_last)


FEDX = SSLMethod(WithPredictor, loss, predictor=True, needs=frozenset({"others", "frozen"}))
