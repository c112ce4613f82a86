"""A self-supervised method of your own: Barlow Twins (Zbontar et al., ICML 2021), federated with FedGaLA's rules.

    python examples/own_method.py

Dimensions of the projection should agree between the two views of an image, and say different things. That is a loss on
one matrix; there is no target network and no queue, so nothing follows a step and nothing stays at home.
"""

import torch
from torch import Tensor, nn

import fedgala
from fedgala.methods import add_loss
from fedgala.ssl import Batch, Outcome, SSLMethod
from fedgala.ssl.base import Projected


def redundancy(first: Tensor, second: Tensor, weight: float = 0.01) -> Tensor:
    """The distance of the two (B, D) views' correlation matrix from the identity."""
    count, length = first.shape
    first, second = ((z - z.mean(0)) / (z.std(0) + 1e-6) for z in (first.float(), second.float()))
    correlation = first.T @ second / count
    same = torch.eye(length, dtype=torch.bool, device=correlation.device)
    return (correlation[same] - 1).square().sum() + weight * correlation[~same].square().sum()


def loss(module: nn.Module, batch: Batch) -> Outcome:
    """What a step descends: both views of all images, projected."""
    projections = module(batch.views)
    return Outcome(redundancy(*projections.chunk(2)), projections)


add_loss("barlow", SSLMethod(build=Projected, loss=loss))

run = fedgala.train(
    fedgala.RunConfig.from_dict(
        {
            **fedgala.PRESETS["cpu"],
            "name": "barlow",
            "data": {"path": "shapes", "target": "sketch", "limit": 192},
            "ssl": {"method": "barlow"},
            "federation": {"rounds": 2, "batch_size": 64},
        }
    )
)
print(f"loss {[round(record['loss'], 2) for record in run.records.read('round')]}, encoder in {run.encoder_path}")
