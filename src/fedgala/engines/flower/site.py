"""A site: its pictures, its own state on its own disk, and the training of one round, as an answer to a request.

What a site keeps lies in a folder for each run. ``state-ROUND`` is its private state after a round it has trained: the
two newest stay, since a server that was restarted may ask for the last round again, and must get the same answer.
``model-DIGEST`` is a global model it was sent: with the last one it derives the reference, theta_t - theta_(t-1), by
itself, so that the server need not send it.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from fedgala.api import check_batches, choose_device, share_out, split_target
from fedgala.checkpoint import load_local, save_local
from fedgala.client import Trainer
from fedgala.config import RunConfig
from fedgala.data.domain import DomainData
from fedgala.data.listing import Item, Listing, list_items
from fedgala.data.resolve import read_tree
from fedgala.data.source import open_dataset, open_listing
from fedgala.engines.flower import wire
from fedgala.engines.flower.frames import Frame
from fedgala.errors import CheckpointError, DataError, FedgalaError
from fedgala.messages import Broadcast, LocalState
from fedgala.observe import Observer
from fedgala.parameters import Layouts
from fedgala.storage import load_tensors, save_tensors

REFERENCE = "reference/"  # before the names of the last global update, where it is sent
KEPT = 2  # states and models that stay on the disk


@dataclass(frozen=True)
class Place:
    """Where a site is: its name, its pictures, and the folder for what it keeps."""

    name: str
    data: str | None  # a folder or archive of its own; None where it is one client of the run's data set (simulation)
    folder: Path


class Site:
    """Answers requests; holds the pictures and the trainer from one round to the next."""

    def __init__(self, place: Place, watcher: Observer | None = None):
        self.place, self.watcher = place, watcher or Observer()
        self._trainer: Trainer | None = None
        self._data: tuple[object, DomainData] | None = None

    def answer(self, request: Frame, on_step: Callable[[], None] = lambda: None) -> Frame:
        """What the site has to say to a request; a mistake that someone can put right is an answer too."""
        words = {key: request.words.get(key) for key in ("run", "round", "nonce")} | {"site": self.place.name}
        try:
            found = self._train(request, on_step)
        except FedgalaError as error:
            return Frame({**words, "error": str(error)})
        return Frame({**words, **found.words}, found.arrays)

    def _train(self, request: Frame, on_step: Callable[[], None]) -> Frame:
        words = request.words
        config = RunConfig.from_dict(words["config"])
        if config.hash != words["run"]:
            raise FedgalaError(
                f"this fedgala reads the run {words['run']} as {config.hash}: install the server's version"
            )
        trainer = self._trainer_of(config)
        data = self._data_of(config, trainer)
        folder, number, transport = self.place.folder / config.hash, int(words["round"]), str(words["transport"])
        layouts = trainer.model.layouts
        model = {name: array for name, array in request.arrays.items() if not name.startswith(REFERENCE)}
        weights, statistics = wire.unpack(model, layouts, transport)
        try:
            reference = self._reference(request, folder, weights, layouts, transport)
        except LookupError:
            return Frame({"lacks": words["previous"]})
        state = self._state(folder, number, layouts)
        update, after = trainer.train_client(Broadcast(number, weights, statistics, reference), state, data, on_step)
        self._keep(folder, number, after, model, layouts)
        answer = {"samples": update.num_samples, "metrics": update.metrics, "conflicts": update.conflicts}
        return Frame(
            {**answer, "holds": wire.digest(model)}, wire.pack(update.update, update.statistics, layouts, transport)
        )

    def _trainer_of(self, config: RunConfig) -> Trainer:
        if self._trainer is None or self._trainer.config != config:
            if config.engine.threads:
                torch.set_num_threads(config.engine.threads)
            self._trainer = Trainer(config, choose_device(config.engine.device))
        return self._trainer

    def _data_of(self, config: RunConfig, trainer: Trainer) -> DomainData:
        key = (config.data, config.partition, config.seed)
        if self._data is None or self._data[0] != key:
            data = open_site(self.place, config, self.watcher)
            self._data = key, data.to(trainer.device)
        check_batches([self._data[1]], config.federation.batch_size)  # of this run: the pictures may be of another
        return self._data[1]

    def _reference(
        self, request: Frame, folder: Path, weights: Tensor, layouts: Layouts, transport: str
    ) -> Tensor | None:
        """The last global update: as it was sent, or derived from the model that the server says came before."""
        previous = request.words["previous"]
        if sent := {n.removeprefix(REFERENCE): a for n, a in request.arrays.items() if n.startswith(REFERENCE)}:
            return wire.unpack_vector(sent, layouts.weights, transport)
        if previous is None:
            return None
        try:
            tensors, _ = load_tensors(folder / f"model-{previous}.safetensors")
        except CheckpointError as error:
            raise LookupError(previous) from error
        arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
        if wire.digest(arrays) != previous:
            raise LookupError(previous)
        return weights - wire.unpack(arrays, layouts, transport)[0]

    def _state(self, folder: Path, number: int, layouts: Layouts) -> LocalState | None:
        """The newest state from before this round: a round that is asked for again begins where it began before."""
        before = [path for path in _states(folder) if _round(path) < number]
        return load_local(before[-1], layouts, self._belongs()) if before else None

    def _keep(
        self, folder: Path, number: int, state: LocalState, model: Mapping[str, NDArray[Any]], layouts: Layouts
    ) -> None:
        save_local(folder / f"state-{number:06}.safetensors", state, layouts, self._belongs())
        path = folder / f"model-{wire.digest(model)}.safetensors"
        save_tensors(path, {name: torch.from_numpy(array.copy()) for name, array in model.items()}, {})
        older = [path for path in _states(folder) if _round(path) <= number]
        models = sorted(folder.glob("model-*.safetensors"), key=lambda it: it.stat().st_mtime_ns)
        for old in {*_states(folder)} - {*older[-KEPT:]} | {*models[:-KEPT]} - {path}:
            old.unlink(missing_ok=True)

    def _belongs(self) -> dict[str, str]:
        return {"site": self.place.name}


def open_site(place: Place, config: RunConfig, watcher: Observer) -> DomainData:
    """The pictures of a site as one domain under its name.

    All pictures below its folder are its own, in whatever folders they lie; those of one folder stay together. Without
    a folder it is the client of that name in the run's own data set, which is how simulations deal pictures out.

    Raises:
        DataError: there are no pictures, or no such client.
    """
    if place.data is None:
        clients = {client.name: client for client in _clients(config, watcher)}
        if place.name not in clients:
            raise DataError(f"no client {place.name} in {config.data.path}: there are {', '.join(clients)}")
        return clients[place.name]
    tree = read_tree(Path(place.data))
    items = list_items(
        Item(place.name, "/".join(it.path), it.name(file), file.source) for it in tree.folders for file in it.pictures
    )
    if not items:
        raise DataError(f"site {place.name}: {place.data} holds no pictures")
    return open_listing(Listing(place.name, tree.root, items), config.data, watcher)[0].domains[0]


@cache
def simulated_name(config: str, index: int) -> str:
    """The name of the client of this number, in a run whose configuration is given as JSON.

    Raises:
        DataError: there are fewer clients.
    """
    names = [client.name for client in _clients(RunConfig.from_dict(json.loads(config)), Observer())]
    if index >= len(names):
        raise DataError(f"node {index} of a simulation: the run has {len(names)} clients ({', '.join(names)})")
    return names[index]


def _clients(config: RunConfig, watcher: Observer) -> tuple[DomainData, ...]:
    return share_out(
        split_target(open_dataset(config.data, watcher), config.data.target, config.data.sources)[0], config
    )


def _states(folder: Path) -> list[Path]:
    return sorted(folder.glob("state-*.safetensors"))


def _round(path: Path) -> int:
    return int(path.stem.removeprefix("state-"))
