"""The encoder is the product: one safetensors file with torchvision's ResNet names, readable without fedgala too."""

from pathlib import Path

import torch
from torch import nn

from fedgala.config import RunConfig
from fedgala.errors import CheckpointError
from fedgala.models import ENCODERS, ResNet
from fedgala.storage import load_tensors, save_tensors


def save_encoder(path: Path, encoder: nn.Module, config: RunConfig) -> None:
    """Write the encoder, and in its metadata what is needed to use it: architecture, input size, run."""
    metadata = {
        "format": "fedgala-encoder-1",
        "architecture": config.model.encoder,
        "crop": str(config.views.crop),
        "features": str(ENCODERS[config.model.encoder].features),
        "run": config.hash,
        "target": config.data.target or "",
    }
    tensors = {name: tensor for name, tensor in encoder.state_dict().items() if tensor.is_floating_point()}
    save_tensors(path, tensors, metadata)  # the norms' batch counters count one process, not the federation


def load_encoder(path: str | Path) -> ResNet:
    """The encoder in `path`, a ready `nn.Module` in evaluation mode.

    It maps (N, 3, H, W) images in [0, 1] to (N, features); `crop` is the side of the pictures it was trained on.

    Raises:
        CheckpointError: the file is missing, damaged, or holds no encoder.
    """
    tensors, metadata = load_tensors(Path(path))
    architecture = ENCODERS.get(metadata.get("architecture", ""))
    if architecture is None or metadata.get("format") != "fedgala-encoder-1":
        raise CheckpointError(f"{path} holds no fedgala encoder")
    with torch.random.fork_rng(devices=[]):
        encoder = ResNet(architecture)
    try:
        encoder.load_state_dict(tensors)
    except RuntimeError as error:
        raise CheckpointError(f"{path} does not fit its architecture {metadata['architecture']}") from error
    encoder.crop = int(metadata["crop"])
    encoder.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return encoder.eval()
