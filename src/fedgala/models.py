"""Encoders: residual networks for small pictures, with torchvision's names for every tensor.

`resnet18` is the paper's: a 3x3 stem of stride 1 and no max-pool, so that 32 px come to the 4x4 maps which its average
pool covers (here a global mean: the same at 32 px, and defined at every other size). `small` is for CPUs.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with a residual connection."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample: nn.Module | None = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) to (N, outputs, H / stride, W / stride)."""
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)), inplace=True)


@dataclass(frozen=True)
class Architecture:
    """The numbers that tell one residual network from another."""

    blocks: tuple[int, int, int, int]
    width: int
    stem_stride: int

    @property
    def features(self) -> int:
        """The length of the feature vector."""
        return self.width * 8


ENCODERS = {
    "resnet18": Architecture((2, 2, 2, 2), 64, 1),
    "small": Architecture((1, 1, 1, 1), 24, 2),
}


class ResNet(nn.Module):
    """A residual encoder: (N, 3, H, W) images in [0, 1] to (N, features)."""

    def __init__(self, architecture: Architecture):
        super().__init__()
        self.features = architecture.features
        self.crop = 32
        width = architecture.width
        self.conv1 = nn.Conv2d(3, width, 3, architecture.stem_stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.layer1 = self._stage(width, width, architecture.blocks[0], 1)
        self.layer2 = self._stage(width, width * 2, architecture.blocks[1], 2)
        self.layer3 = self._stage(width * 2, width * 4, architecture.blocks[2], 2)
        self.layer4 = self._stage(width * 4, width * 8, architecture.blocks[3], 2)

    @staticmethod
    def _stage(inputs: int, outputs: int, blocks: int, stride: int) -> nn.Sequential:
        first = BasicBlock(inputs, outputs, stride)
        return nn.Sequential(first, *(BasicBlock(outputs, outputs, 1) for _ in range(blocks - 1)))

    def forward(self, images: Tensor) -> Tensor:
        """(N, features) the features of the images."""
        x = F.relu(self.bn1(self.conv1(images)), inplace=True)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        features: Tensor = x.mean((2, 3))
        return features


def build_encoder(name: str, generator: torch.Generator) -> ResNet:
    """An encoder from the table with fresh weights that depend on `generator` only."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
        return ResNet(ENCODERS[name])
