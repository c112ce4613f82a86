"""Self-supervised losses as functions on tensors."""

import torch
from torch import Tensor
from torch.nn import functional as F


def nt_xent(projections: Tensor, temperature: float) -> Tensor:
    """NT-Xent, SimCLR's loss: each view must find its partner among all other views of the batch.

    Args:
        projections: (2B, D), where rows i and i + B are the two views of image i; any length, only directions count.
        temperature: divides the cosines.

    Returns:
        The mean over all 2B views of -log softmax at the partner, the view itself left out.
    """
    directions = F.normalize(projections.float(), dim=1)
    count = len(directions)
    index = torch.arange(count, device=directions.device)
    similarity = directions @ directions.T / temperature
    similarity = similarity.masked_fill(index[:, None] == index, float("-inf"))
    return F.cross_entropy(similarity, (index + count // 2) % count)
