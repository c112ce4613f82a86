"""How a client begins a round: from the global model, and from its own where a rule mixes the two.

`global` takes the global model as it is. `ema` is FedEMA's (Zhuang et al., ICLR 2022): the more a client's encoder has
diverged, the more of its own model it keeps. `dapu` is FedU's (Zhuang et al., ICCV 2021): a client whose encoder moved
far in its last training keeps its own predictor.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedgala.parameters import Layout

Facts = Mapping[str, float]  # numbers that a rule remembers of a client


@dataclass(frozen=True)
class Arrival:
    """A client at the beginning of a round."""

    round: int
    sent: Tensor  # the global weights, as a flat vector of the shared layout
    own: Tensor  # the client's, as it left them
    facts: Facts


@dataclass(frozen=True)
class EntryNumbers:
    """The numbers of the rules."""

    share: float = 0.7  # FedEMA's tau: the share of its own model that a client keeps the first time
    threshold: float = 0.4  # FedU's mu


@dataclass(frozen=True)
class Entry:
    """A rule: with which weights a client enters, and what it will want to know when it does so again."""

    enter: Callable[[Arrival, Layout, EntryNumbers], tuple[Tensor, Facts]]
    leave: Callable[[int, Tensor, Layout], Facts]  # the round, the client's update in it
    keeps: bool = True  # whether the client's own weights are needed


def as_sent(arrival: Arrival, layout: Layout, numbers: EntryNumbers) -> tuple[Tensor, Facts]:
    """The global model."""
    return arrival.sent, {}


def moving_average(arrival: Arrival, layout: Layout, numbers: EntryNumbers) -> tuple[Tensor, Facts]:
    """Mu own + (1 - mu) global, where mu = min(lambda |own encoder - global encoder|, 1).

    lambda is set once, so that mu is `share` the first time. Only a client that trained in the round before mixes: an
    older model is no longer its own view of this one.
    """
    if arrival.facts.get("round") != arrival.round - 1:
        return arrival.sent, {name: value for name, value in arrival.facts.items() if name == "scale"}
    distance = float(segment_norms(arrival.own - arrival.sent, layout, "encoder.").square().sum().sqrt())
    scale = arrival.facts.get("scale") or (numbers.share / distance if distance else 0.0)
    mu = min(scale * distance, 1.0)
    return torch.lerp(arrival.sent, arrival.own, mu), {"scale": scale}


def own_predictor(arrival: Arrival, layout: Layout, numbers: EntryNumbers) -> tuple[Tensor, Facts]:
    """The global model, but the client's own predictor if its divergence reached the threshold."""
    if arrival.facts.get("divergence", 0.0) < numbers.threshold:
        return arrival.sent, {}
    mixed = arrival.sent.clone()
    for segment in layout.segments:
        if segment.name.startswith("predictor."):
            layout.view(mixed, segment).copy_(layout.view(arrival.own, segment))
    return mixed, {}


def divergence(update: Tensor, layout: Layout) -> float:
    """The mean length, over the encoder's convolutions, of what local training changed in each."""
    lengths = segment_norms(update, layout, "encoder.")
    convolutions = [len(it.shape) == 4 for it in layout.segments if it.name.startswith("encoder.")]
    return float(lengths[torch.tensor(convolutions, device=lengths.device)].mean())


def segment_norms(vector: Tensor, layout: Layout, prefix: str) -> Tensor:
    """The length of each segment whose name begins with `prefix`."""
    chosen = torch.tensor([it.name.startswith(prefix) for it in layout.segments], device=vector.device)
    return layout.sums(vector * vector)[chosen].sqrt()


ENTRIES: dict[str, Entry] = {
    "global": Entry(as_sent, lambda round, update, layout: {}, keeps=False),
    "ema": Entry(moving_average, lambda round, update, layout: {"round": float(round)}),
    "dapu": Entry(own_predictor, lambda round, update, layout: {"divergence": divergence(update, layout)}),
}
