"""SimCLR (Chen et al., 2020): encoder, projector, and NT-Xent between two views."""

from torch import Tensor, nn

from fedgala.ssl.losses import nt_xent


class SimCLR(nn.Module):
    """An encoder with a two-layer projector on top (512-4096-2048 in the paper)."""

    def __init__(self, encoder: nn.Module, features: int, hidden: int, output: int):
        super().__init__()
        self.encoder = encoder
        self.projector = nn.Sequential(
            nn.Linear(features, hidden), nn.BatchNorm1d(hidden), nn.ReLU(inplace=True), nn.Linear(hidden, output)
        )

    def forward(self, images: Tensor) -> Tensor:
        """(N, output) the projections of (N, 3, H, W) images."""
        projections: Tensor = self.projector(self.encoder(images))
        return projections


def loss(module: nn.Module, views: Tensor, temperature: float) -> Tensor:
    """NT-Xent of (2B, 3, H, W) views, rows i and i + B from the same image."""
    return nt_xent(module(views), temperature)
