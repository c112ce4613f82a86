"""A deployment on this machine, from keys to the encoder: a server and three sites, each a process of its own.

Each site reads a folder that holds its own style of `shapes` and nothing else, and calls the server over TLS with its
own key. The server has the fourth style, to probe. Then the same run on the engine of one machine: equal to the bit.
"""

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from PIL import Image

from fedgala.api import train
from fedgala.config import RunConfig, merge
from fedgala.data.domain import DomainData
from fedgala.data.shapes import make_shapes
from fedgala.engines.flower.control import Control, environment
from fedgala.engines.flower.deployment import Server, create, read_site
from fedgala.engines.flower.operate import operate
from fedgala.engines.flower.processes import (
    free_port,
    start,
    stop,
    stop_worker,
    superlink_command,
    supernode_command,
    wait_for,
)
from fedgala.engines.flower.settings import DeployConfig
from fedgala.presets import CPU
from fedgala.run import Run
from fedgala.storage import load_tensors

PICTURES = 16  # per class and style
TARGET = "sketch"
Say = Callable[[str], None]


def demonstrate(root: Path, rounds: int, say: Say) -> tuple[Run, bool]:
    """The run of a fresh deployment in `root`, and whether the engine of one machine gives the same encoder."""
    shutil.rmtree(root, ignore_errors=True)
    pictures, sites = write_pictures(root / "pictures")
    say(f"pictures of {', '.join(sites)}, a folder for each site; the server holds {TARGET}")
    server = create(root / "deployment", sites, "127.0.0.1", free_port(), secure=True, insist=False)
    with running(server, {name: pictures / name / name for name in sites}, say):
        run = operate(server, configuration(pictures / TARGET, rounds), DeployConfig(min_sites=3), False, say)
    say("the same run on the engine of one machine")
    local = replace(configuration(root / "together", rounds), out=str(root / "local"))
    for name in (*sites, TARGET):
        shutil.copytree(pictures / name / name, root / "together" / name)
    return run, same_encoder(run, train(local))


def configuration(pictures: Path, rounds: int) -> RunConfig:
    """A run of seconds a round; one thread, so that every process does the same arithmetic."""
    over: dict[str, Any] = {
        "data": {"path": str(pictures), "target": TARGET},
        "engine": {"threads": 1, "device": "cpu"},
    }
    return RunConfig.from_dict(merge(merge(CPU, over), {"federation": {"rounds": rounds, "batch_size": 32}}))


def write_pictures(root: Path) -> tuple[Path, tuple[str, ...]]:
    """``root/STYLE/STYLE/CLASS/n.png``: a folder for each style, whose name the pictures keep; and the sites."""
    shapes = make_shapes(images_per_class=PICTURES)
    for domain in shapes.domains:
        _write(domain, shapes.classes, root / domain.name / domain.name)
    return root, tuple(name for name in shapes.names if name != TARGET)


def _write(domain: DomainData, classes: Sequence[str], folder: Path) -> None:
    assert domain.labels is not None
    for index, label in enumerate(domain.labels.tolist()):
        place = folder / classes[label]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(domain.picture(index).permute(1, 2, 0).numpy()).save(place / f"{index:04}.png")


@contextmanager
def running(server: Server, data: dict[str, Path], say: Say) -> Iterator[Control]:
    """A server and its sites as processes on this machine, until the block ends; their output is in the folders."""
    control = Control(server, environment(server.folder / "flwr"))
    began = time.monotonic()
    sites = {name: read_site(server.folder.parent / "sites" / name) for name in data}
    processes = [start(superlink_command(server), server.folder / "flwr", server.folder / "superlink.log")]
    try:
        wait_for(server)
        if server.secure:
            control.register_all()
        say(f"server at {server.address}, up in {time.monotonic() - began:.0f} s")
        for name, site in sites.items():
            processes.append(start(supernode_command(site, data[name]), site.folder / "flwr", site.folder / "site.log"))
        yield control
    finally:
        for site in sites.values():
            stop_worker(site)
        for process in reversed(processes):
            stop(process)


def same_encoder(first: Run, second: Run) -> bool:
    """Whether two runs ended with the same bits."""
    one, other = (load_tensors(run.encoder_path)[0] for run in (first, second))
    return one.keys() == other.keys() and all(bool((one[name] == other[name]).all()) for name in one)
