"""What passes between server and clients, and what each keeps: small frozen records of flat vectors."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedgala.optim import Moments

FACT = "fact-"  # before the name of a number that a client keeps, where tensors are stored


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
    """What never leaves a client."""

    moments: Moments
    statistics: Tensor  # its own norms', as it left them
    own: Tensor = field(default_factory=lambda: torch.zeros(0))  # its trainable weights, where they are needed again
    private: Tensor = field(default_factory=lambda: torch.zeros(0))  # target network, queue, ...
    facts: Mapping[str, float] = field(default_factory=dict)  # numbers that rules remember

    def tensors(self) -> dict[str, Tensor]:
        """The state by name, as a checkpoint holds it."""
        facts = {FACT + name: torch.tensor([value], dtype=torch.float64) for name, value in self.facts.items()}
        vectors = {"statistics": self.statistics, "own": self.own, "private": self.private}
        return {**self.moments.tensors(), **vectors, **facts}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "LocalState":
        """The inverse of `tensors`."""
        moments = Moments(tensors["first"], tensors["second"], tensors["steps"])
        facts = {name.removeprefix(FACT): float(value) for name, value in tensors.items() if name.startswith(FACT)}
        return cls(moments, tensors["statistics"], tensors["own"], tensors["private"], facts)


@dataclass(frozen=True)
class ServerState:
    """The global model after `round` rounds, and the update that led there."""

    round: int
    weights: Tensor
    statistics: Tensor
    reference: Tensor | None
    shares: Mapping[str, float] = field(default_factory=dict)  # what a rule with a memory gave each client

    def broadcast(self) -> Broadcast:
        """What the clients of the next round are sent."""
        return Broadcast(self.round + 1, self.weights, self.statistics, self.reference)
