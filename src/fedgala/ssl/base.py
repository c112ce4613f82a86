"""What a self-supervised method is made of: the numbers it is built from, what a step shows it, what it answers."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

Frozen = Callable[[Tensor], Tensor]  # images to projections, without gradient


@dataclass(frozen=True)
class Recipe:
    """The numbers a method is built from; each uses those that it knows."""

    features: int  # length of the encoder's output
    hidden: int = 4096  # width of the projector's hidden layer
    output: int = 2048  # length of a projection
    head: str = "mlp"  # the projector: two layers, or one (MoCo v1)
    predictor: int = 4096  # width of the predictor's hidden layer
    temperature: float = 0.07
    momentum: float = 0.99  # of a target network
    queue: int = 1024  # negatives that are kept
    adversary: float = 3.0  # learning rate of AdCo's negatives
    adversary_temperature: float = 0.02
    relation: float = 0.1  # temperature of FedX's relations
    domains: int = 1  # that a client's pictures come from
    classes: int = 0  # 0 where there are no labels


@dataclass(frozen=True)
class Batch:
    """What a step shows a method. Rows i and i + B of `views` are the two views of image i."""

    views: Tensor  # (2B, 3, H, W)
    labels: Tensor | None = None  # (B,)
    domains: Tensor | None = None  # (B,) which of the client's domains an image is from
    others: Tensor | None = None  # (B / 2, 3, H, W) views of other images, for methods that ask for them
    frozen: Frozen | None = None  # the global model as the round began, for methods that ask for it


@dataclass(frozen=True)
class Outcome:
    """The loss of a batch, and the projections it came from: of all views, or of the first."""

    loss: Tensor
    projections: Tensor


def nothing(module: nn.Module) -> None:
    """Most methods have nothing to do."""


@dataclass(frozen=True)
class SSLMethod:
    """A method is how its module is built, the loss of a batch, and what stays with the client.

    The module has parts named `encoder` and `projector`. `begin` is called when a client takes part for the first time
    and its model is the global one; `after_step` after each step of the optimizer.
    """

    build: Callable[[nn.Module, Recipe], nn.Module]
    loss: Callable[[nn.Module, Batch], Outcome]
    begin: Callable[[nn.Module], None] = nothing
    after_step: Callable[[nn.Module], None] = nothing
    home: tuple[str, ...] = ()  # sub-networks and buffers that never leave a client
    predictor: bool = False  # whether there is one, which stays at home or travels, as is chosen
    classifies: bool = False  # whether the projector's largest output is an answer
    needs: frozenset[str] = frozenset()  # of a batch beyond its views: labels, domains, others, frozen


def mlp(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    """Two layers with a norm between them: the paper's projector and predictor."""
    return nn.Sequential(
        nn.Linear(inputs, hidden), nn.BatchNorm1d(hidden), nn.ReLU(inplace=True), nn.Linear(hidden, outputs)
    )


def projector(recipe: Recipe) -> nn.Module:
    """What stands between encoder and loss; its input is as long as the encoder's features."""
    if recipe.head == "linear":
        return nn.Linear(recipe.features, recipe.output)
    return mlp(recipe.features, recipe.hidden, recipe.output)


class Projected(nn.Module):
    """An encoder with a projector on top: (N, 3, H, W) images to (N, output) projections."""

    def __init__(self, encoder: nn.Module, recipe: Recipe):
        super().__init__()
        self.encoder = encoder
        self.projector = projector(recipe)
        self.recipe = recipe

    def forward(self, images: Tensor) -> Tensor:
        """(N, output) the projections of the images."""
        projections: Tensor = self.projector(self.encoder(images))
        return projections


class WithPredictor(Projected):
    """On top of it a predictor, whose input and output are projections."""

    def __init__(self, encoder: nn.Module, recipe: Recipe):
        super().__init__(encoder, recipe)
        self.predictor = mlp(recipe.output, recipe.predictor, recipe.output)


class WithTarget(Projected):
    """Beside it a target network, which follows by a moving average and is never trained itself."""

    def __init__(self, encoder: nn.Module, recipe: Recipe):
        super().__init__(encoder, recipe)
        self.target = nn.Sequential(deepcopy(self.encoder), deepcopy(self.projector)).requires_grad_(False)

    def aim(self, images: Tensor) -> Tensor:
        """(N, output) the target network's projections, without gradient."""
        with torch.no_grad():
            projections: Tensor = self.target(images)
        return projections


@torch.no_grad()
def follow_(module: nn.Module, momentum: float | None = None) -> None:
    """Move the target network: target = m target + (1 - m) online."""
    assert isinstance(module, WithTarget)
    m = module.recipe.momentum if momentum is None else momentum
    online: list[Tensor] = [*module.encoder.parameters(), *module.projector.parameters()]
    target: list[Tensor] = list(module.target.parameters())
    torch._foreach_lerp_(target, online, 1 - m)


def join_(module: nn.Module) -> None:
    """The target network begins where the online network is."""
    follow_(module, momentum=0.0)
