"""Self-supervised methods: each is an entry in `METHODS`, a record of how to build its module and its loss."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from fedgala.ssl import simclr


@dataclass(frozen=True)
class SSLMethod:
    """What a method adds to an encoder.

    Its module has a part named `encoder`, and maps images to what the loss, and the projector probe, work on.
    """

    build: Callable[[nn.Module, int, int, int], nn.Module]  # encoder, its features, projector's hidden and output
    loss: Callable[[nn.Module, Tensor, float], Tensor]  # module, (2B, 3, H, W) views, temperature


METHODS: dict[str, SSLMethod] = {"simclr": SSLMethod(simclr.SimCLR, simclr.loss)}
