"""What many tests need: a small data set in memory and on disk, and a configuration that trains in a second."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fedgala.config import RunConfig, merge
from fedgala.data.domain import DomainData

TINY: dict[str, Any] = {
    "data": {"size": 24},
    "views": {"crop": 16},
    "model": {"encoder": "small", "projector_hidden": 16, "projector_output": 8},
    "federation": {"rounds": 2, "epochs": 1.0, "batch_size": 8},
    "probe": {"epochs": 3, "splits": 2},
    "engine": {"device": "cpu", "threads": 1},
}


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    pytest.MonkeyPatch().setenv("FEDGALA_CACHE", str(tmp_path_factory.mktemp("cache")))
    pytest.MonkeyPatch().setenv("HF_HOME", str(tmp_path_factory.mktemp("hf")))  # read when `datasets` is imported
    pytest.MonkeyPatch().setenv("HF_HUB_OFFLINE", "1")


def random_domain(name: str, count: int = 20, size: int = 24, labelled: bool = True, seed: int = 0) -> DomainData:
    """Noise as pictures."""
    generator = torch.Generator().manual_seed(seed)
    return DomainData(
        name,
        torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8, generator=generator),
        torch.full((count, 2), size, dtype=torch.int32),
        torch.arange(count) % 2 if labelled else None,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three domains of two classes of ten noisy pictures each: ``DIR/<domain>/<class>/<n>.png``."""
    root, generator = tmp_path / "pictures", np.random.default_rng(0)
    for domain in ("bright", "dark", "plain"):
        for kind in ("cat", "dog"):
            (root / domain / kind).mkdir(parents=True)
            for number in range(10):
                pixels = generator.integers(0, 256, (24, 24, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(root / domain / kind / f"{number}.png")
    return root


@pytest.fixture
def tiny(tmp_path: Path, folder: Path) -> Callable[..., RunConfig]:
    """A run of seconds on `folder`, with nested settings on top."""

    def make(**over: Any) -> RunConfig:
        own = {"out": str(tmp_path / "runs"), "data": {"path": str(folder), "target": "plain"}}
        return RunConfig.from_dict(merge(merge(TINY, own), over))

    return make
