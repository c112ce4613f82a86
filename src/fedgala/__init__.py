"""Federated unsupervised domain generalization: one image encoder from sites that share neither data nor labels.

    import fedgala

    run = fedgala.train(fedgala.RunConfig(data=fedgala.DataConfig(path="photos", target="sketch")))
    features = run.encoder(images)

Names are loaded when they are first used, so ``import fedgala`` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from fedgala.api import train
    from fedgala.config import (
        DataConfig,
        EngineConfig,
        EntryConfig,
        FederationConfig,
        LocalConfig,
        ModelConfig,
        OptimizerConfig,
        PartitionConfig,
        PrivacyConfig,
        ProbeConfig,
        RunConfig,
        ServerConfig,
        SslConfig,
        ViewsConfig,
    )
    from fedgala.errors import FedgalaError
    from fedgala.export import load_encoder
    from fedgala.methods import METHODS
    from fedgala.observe import Observer
    from fedgala.presets import PRESETS
    from fedgala.run import Run

_CONFIG = (
    "DataConfig EngineConfig EntryConfig FederationConfig LocalConfig ModelConfig OptimizerConfig PartitionConfig "
    "PrivacyConfig ProbeConfig RunConfig ServerConfig SslConfig ViewsConfig"
)
_HOMES = {
    "train": "api",
    "FedgalaError": "errors",
    "load_encoder": "export",
    "METHODS": "methods",
    "Observer": "observe",
    "PRESETS": "presets",
    "Run": "run",
    **dict.fromkeys(_CONFIG.split(), "config"),
}

__all__ = [
    "METHODS",
    "PRESETS",
    "DataConfig",
    "EngineConfig",
    "EntryConfig",
    "FederationConfig",
    "FedgalaError",
    "LocalConfig",
    "ModelConfig",
    "Observer",
    "OptimizerConfig",
    "PartitionConfig",
    "PrivacyConfig",
    "ProbeConfig",
    "Run",
    "RunConfig",
    "ServerConfig",
    "SslConfig",
    "ViewsConfig",
    "load_encoder",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fedgala' has no attribute {name!r}")
    return getattr(import_module(f"fedgala.{_HOMES[name]}"), name)
