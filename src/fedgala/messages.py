"""What passes between server and clients, and what each keeps: small frozen records of flat vectors."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from fedgala.optim import Moments


@dataclass(frozen=True)
class Broadcast:
    """What the server sends to the clients of a round."""

    round: int  # the first is 1
    weights: Tensor
    statistics: Tensor
    reference: Tensor | None  # the last global update; None in the first round


@dataclass(frozen=True)
class ClientUpdate:
    """What a client sends back. `update` is its weights minus the global ones: it points downhill."""

    client: str
    update: Tensor
    statistics: Tensor
    num_samples: int
    metrics: dict[str, float]
    conflicts: tuple[float, ...] = ()  # share of the round's steps in which each unit did not agree


@dataclass(frozen=True)
class LocalState:
    """What never leaves a client: optimizer moments, and its own norm statistics where those are not averaged."""

    moments: Moments
    statistics: Tensor

    def tensors(self) -> dict[str, Tensor]:
        """The state by name, as a checkpoint holds it."""
        return {**self.moments.tensors(), "statistics": self.statistics}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "LocalState":
        """The inverse of `tensors`."""
        return cls(Moments(tensors["first"], tensors["second"], tensors["steps"]), tensors["statistics"])


@dataclass(frozen=True)
class ServerState:
    """The global model after `round` rounds, and the update that led there."""

    round: int
    weights: Tensor
    statistics: Tensor
    reference: Tensor | None

    def broadcast(self) -> Broadcast:
        """What the clients of the next round are sent."""
        return Broadcast(self.round + 1, self.weights, self.statistics, self.reference)
