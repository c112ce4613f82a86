"""From a configuration to a finished run on this machine: where data, device, engine and reports come together."""

import sys
from collections.abc import Sequence
from functools import partial

import torch

from fedgala import seeds
from fedgala.client import Trainer, num_steps
from fedgala.config import RunConfig
from fedgala.data.domain import Dataset, DomainData, place
from fedgala.data.listing import some
from fedgala.data.partition import partition
from fedgala.data.source import open_dataset
from fedgala.engines.local import LocalEngine
from fedgala.errors import ConfigError, DataError
from fedgala.evaluation import evaluate
from fedgala.export import save_encoder
from fedgala.messages import ServerState
from fedgala.observe import Observer
from fedgala.report.plots import draw_run
from fedgala.run import RoundLoop, Run
from fedgala.services import logged, require
from fedgala.settings import near
from fedgala.ssl import METHODS

ROOM = 0.6  # share of a device's free memory that pictures may take


def train(config: RunConfig, observer: Observer | None = None) -> Run:
    """Carry out a run on this machine, or finish it; returns at once when it is finished already.

    Raises:
        FedgalaError: a mistake in the configuration or the data, a damaged file, a loss that is not a number.
        KeyboardInterrupt: as it comes; the last whole round has been saved, and the same call goes on from there.
    """
    watcher = observer or Observer()
    run = Run(config, config.folder)
    require(config.log)
    if run.finished:
        with logged(run, watcher):  # a service that was not named before is sent all of it
            watcher.note(f"already finished: {run.folder}")
        return run
    device = choose_device(config.engine.device)
    if config.engine.threads:
        torch.set_num_threads(config.engine.threads)
    dataset = open_dataset(config.data, watcher)
    sources, target = split_target(dataset, config.data.target, config.data.sources)
    sources = share_out(sources, config)
    check_batches(sources, config.federation.batch_size)
    check_method(sources, config)
    with run.opened(), logged(run, watcher) as watcher:
        trainer = Trainer(config, device, num_parts(sources), len(dataset.classes))
        state = _play(run, trainer, sources, target, dataset.fingerprint, watcher)
        trainer.load_(state.weights, state.statistics)
        watcher.working("drawing plots")
        draw_run(run, sources, target, watcher)
        save_encoder(run.encoder_path, trainer.model.module.get_submodule("encoder"), config)
    return run


def _play(
    run: Run,
    trainer: Trainer,
    sources: Sequence[DomainData],
    target: DomainData | None,
    fingerprint: str,
    watcher: Observer,
) -> ServerState:
    here, unseen = _settle(sources, target, trainer.device, watcher)
    loop = RoundLoop(
        run=run,
        engine=LocalEngine(trainer, here),
        layouts=trainer.model.layouts,
        evaluate=partial(evaluate, trainer, here, unseen),
        metadata={"run": run.config.hash, "data": fingerprint},
        watcher=watcher,
    )
    federation = run.config.federation
    watcher.begin(
        run.config, run.folder, {d.name: num_steps(len(d), federation.batch_size, federation.epochs) for d in here}
    )
    return loop.play(trainer.beginning())


def _settle(
    sources: Sequence[DomainData], target: DomainData | None, device: torch.device, watcher: Observer
) -> tuple[tuple[DomainData, ...], DomainData | None]:
    """The domains where training wants them: on the device, if that has room for all of their pixels."""
    domains = (*sources, *([target] if target else []))
    room = int(ROOM * torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else sys.maxsize
    settled, fits = place(domains, device, room)
    if not fits:
        size = sum(domain.num_bytes for domain in domains) / 1e9
        watcher.note(
            f"{size:,.1f} GB of pictures, more than {room / 1e9:,.1f} GB of the device: brought batch by batch"
        )
    return settled[: len(sources)], settled[-1] if target else None


def choose_device(name: str) -> torch.device:
    """The device that `name` stands for.

    Raises:
        ConfigError: no such device here.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, _, index = name.partition(":")
    if kind not in ("cpu", "cuda") or (index and not index.isdigit()):
        raise ConfigError(f"engine.device = {name!r}: allowed: auto, cpu, cuda, cuda:N")
    if kind == "cuda" and int(index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"engine.device = {name!r}: this machine has {torch.cuda.device_count()} CUDA devices")
    return torch.device(name)


def split_target(
    dataset: Dataset, target: str | None, chosen: Sequence[str] | None = None
) -> tuple[tuple[DomainData, ...], DomainData | None]:
    """The domains to train on, all but the unseen one if none are `chosen`, and the unseen one, if one is named.

    Raises:
        DataError: no such domain, or none is left to train on.
    """
    if target is not None and target not in dataset.names:
        raise DataError(f"data.target = {target!r}: no such domain in {dataset.name}; {near(target, dataset.names)}")
    for name in chosen or ():
        if name not in dataset.names or name == target:
            why = "is the unseen domain" if name == target else f"no such domain in {dataset.name}"
            others = [other for other in dataset.names if other != target]
            raise DataError(f"data.sources: {name} {why}; {near(name, others)}")
    sources = tuple(d for d in dataset.domains if d.name != target and (chosen is None or d.name in chosen))
    if not sources:
        raise DataError(
            f"{dataset.name} has one domain only, {target}, and it is the unseen one: nothing is left to train on; "
            "add another domain beside it, or train without --target"
        )
    return sources, dataset[target] if target is not None else None


def share_out(sources: Sequence[DomainData], config: RunConfig) -> tuple[DomainData, ...]:
    """The domains dealt out to clients, as the configuration says."""
    who, chance = config.partition, seeds.generator(config.seed, "partition")
    return partition(sources, who.clients, who.rule, who.alpha, chance)


def num_parts(clients: Sequence[DomainData]) -> int:
    """How many domains a client's pictures come from at most."""
    return max(1 if client.parts is None else 1 + int(client.parts.max()) for client in clients)


def check_method(clients: Sequence[DomainData], config: RunConfig) -> None:
    """Refuse a method that the clients' data have nothing for.

    Raises:
        DataError: labels, or several domains at one client, are needed and not there.
    """
    name, needs = config.ssl.method, METHODS[config.ssl.method].needs
    unlabelled = [client.name for client in clients if client.labels is None]
    if "labels" in needs and unlabelled:
        raise DataError(
            f"ssl.method = {name!r} needs labels; there are none for {some(unlabelled)}: use another method"
        )
    if "domains" in needs and num_parts(clients) == 1:
        raise DataError(
            f"ssl.method = {name!r} chooses negatives among a client's domains, and each client has one: that is moco; "
            "use --clients 1, which pools all domains, or --ssl.method moco"
        )


def check_batches(sources: Sequence[DomainData], batch_size: int) -> None:
    """Refuse a batch that a client can't fill.

    Raises:
        DataError: a client has fewer images than a batch.
    """
    smallest = min(sources, key=len)
    if len(smallest) < batch_size:
        raise DataError(
            f"client {smallest.name} has {len(smallest)} images, fewer than federation.batch_size = {batch_size}; "
            f"use --batch-size {len(smallest)} or less, or add images"
        )
