"""Adam and SGD on the flat vector, with true skipping.

A discarded tensor behaves as ``grad = None`` does in `torch.optim`: weight, moments and step count all stand still.
A zero gradient is something else: Adam would still move along its momentum.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fedgala.parameters import BLOCK, Layout

BETAS = (0.9, 0.999)
EPSILON = 1e-8


@dataclass(frozen=True)
class Moments:
    """What an optimizer remembers between steps; the tensors are changed in place."""

    first: Tensor  # (length,) Adam's mean of gradients, or SGD's momentum
    second: Tensor  # (length,) Adam's mean of squared gradients; empty for SGD
    steps: Tensor  # (segments,) how often each tensor has moved

    def tensors(self) -> dict[str, Tensor]:
        """The state by name, as a checkpoint or another engine holds it."""
        return {"first": self.first, "second": self.second, "steps": self.steps}

    def copy_(self, other: "Moments | None") -> None:
        """Take over the values of `other`, or start afresh."""
        for name, tensor in self.tensors().items():
            tensor.zero_() if other is None else tensor.copy_(other.tensors()[name])

    def clone(self) -> "Moments":
        """A copy that later steps do not touch."""
        return Moments(*(tensor.clone() for tensor in self.tensors().values()))


@dataclass(frozen=True)
class Step:
    """The numbers of one optimizer step."""

    learning_rate: float
    momentum: float = 0.9
    weight_decay: float = 0.0


def adam_(weights: Tensor, gradients: Tensor, moments: Moments, keep: Tensor, layout: Layout, step: Step) -> None:
    """One step of Adam (coupled weight decay, as `torch.optim.Adam`) on the tensors in `keep`, (segments,) bool."""
    moments.steps.add_(keep)
    counts = moments.steps.clamp(min=1)
    kept = layout.spread(keep.to(weights.dtype))
    size = layout.spread(keep * (step.learning_rate / (1 - BETAS[0] ** counts)))
    correction = layout.spread((1 - BETAS[1] ** counts).sqrt())
    weight, gradient = weights.view(-1, BLOCK), gradients.view(-1, BLOCK)
    first, second = moments.first.view(-1, BLOCK), moments.second.view(-1, BLOCK)
    if step.weight_decay:
        gradient = gradient + step.weight_decay * weight
    first.lerp_(gradient, (1 - BETAS[0]) * kept)
    second.mul_(1 - (1 - BETAS[1]) * kept).addcmul_(gradient, gradient * ((1 - BETAS[1]) * kept))
    denominator = second.sqrt().div_(correction).add_(EPSILON)
    weight.sub_(denominator.reciprocal_().mul_(first).mul_(size))


def sgd_(weights: Tensor, gradients: Tensor, moments: Moments, keep: Tensor, layout: Layout, step: Step) -> None:
    """One step of SGD with momentum (as `torch.optim.SGD`, no dampening) on the tensors in `keep`."""
    moments.steps.add_(keep)
    kept = layout.spread(keep.to(weights.dtype))
    weight, gradient, velocity = weights.view(-1, BLOCK), gradients.view(-1, BLOCK), moments.first.view(-1, BLOCK)
    if step.weight_decay:
        gradient = gradient + step.weight_decay * weight
    velocity.mul_(1 - (1 - step.momentum) * kept).addcmul_(gradient, kept)
    weight.sub_(velocity * (step.learning_rate * kept))


@dataclass(frozen=True)
class Optimizer:
    """How a step is made and how many moments per weight it needs."""

    step_: Callable[[Tensor, Tensor, Moments, Tensor, Layout, Step], None]
    has_second: bool

    def start(self, layout: Layout) -> Moments:
        """Moments before the first step."""
        second = layout.zeros() if self.has_second else torch.zeros(0, device=layout.device)
        return Moments(layout.zeros(), second, torch.zeros(len(layout.segments), device=layout.device))


OPTIMIZERS: dict[str, Optimizer] = {"adam": Optimizer(adam_, True), "sgd": Optimizer(sgd_, False)}
