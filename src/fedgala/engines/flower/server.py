"""The server of a deployment, as a Flower ServerApp: our round loop over the engine of many machines.

What a run is comes from the run's configuration in Flower: ``config`` and ``deploy`` hold all of it as JSON, which is
how `fedgala deploy run` starts one; or ``preset`` and settings by their dotted names (``federation.rounds``) say what
differs from the defaults, for who starts it with ``flwr run``.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Mapping
from functools import partial, reduce
from pathlib import Path
from typing import Any

import torch
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedgala.api import choose_device
from fedgala.client import Trainer
from fedgala.config import RunConfig, merge
from fedgala.data.domain import DomainData
from fedgala.data.source import open_dataset
from fedgala.engines.flower.engine import FlowerEngine
from fedgala.engines.flower.settings import DeployConfig, check_together
from fedgala.errors import ConfigError, DataError, FedgalaError
from fedgala.evaluation import evaluate
from fedgala.export import save_encoder
from fedgala.methods import method_settings
from fedgala.observe import Observer
from fedgala.presets import PRESETS
from fedgala.records import Record
from fedgala.run import RoundLoop, Run
from fedgala.services import logged
from fedgala.settings import leaves, near
from fedgala.ssl import METHODS

ORPHANED = 5  # exit code of a ServerApp whose parent has ended

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Carry out the run that the configuration describes, or finish it."""
    end_with_parent()
    config, settings = configurations(context.run_config)
    watcher = Log(config.folder)
    try:
        run = serve(grid, config, settings, watcher)
    except FedgalaError as error:
        watcher.say("stopped", reason=str(error))
        raise
    watcher.say("finished", encoder=str(run.encoder_path))


def end_with_parent() -> None:
    """End this process when the one that started it has ended.

    A ServerApp outlives its SuperLink by minutes, and holds the run's folder: the same command could not go on.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(ORPHANED)

    threading.Thread(target=watch, daemon=True).start()


def serve(grid: Grid, config: RunConfig, settings: DeployConfig, watcher: Observer) -> Run:
    """All rounds that are missing, with a checkpoint after each, then the encoder; any observer may watch.

    Raises:
        FedgalaError: sites stayed away for too long, a mistake in the configuration, a damaged file.
    """
    check_together(config, settings)
    run = Run(config, config.folder)
    if run.finished:
        watcher.note(f"already finished: {run.folder}")
        return run
    refuse_local_only(config)
    if config.engine.threads:
        torch.set_num_threads(config.engine.threads)
    trainer = Trainer(config, choose_device(config.engine.device))
    unseen = unseen_domain(config, trainer, watcher)
    layouts = trainer.model.layouts
    engine = FlowerEngine(grid, config, settings, layouts)
    engine.note = watcher.note
    with run.opened(), logged(run, watcher) as observer:
        loop = RoundLoop(
            run=run,
            engine=engine,
            layouts=layouts,
            evaluate=partial(evaluate, trainer, [], unseen) if unseen else None,
            metadata={"run": config.hash, "data": "sites"},
            watcher=observer,
            saving=float("inf"),
        )
        watcher.begin(config, run.folder, {})
        model = trainer.model
        state = loop.play(trainer.beginning())
        trainer.load_(state.weights, state.statistics)
        save_encoder(run.encoder_path, model.module.get_submodule("encoder"), config)
    return run


def refuse_local_only(config: RunConfig) -> None:
    """Refuse methods that need to know all sites' pictures at once.

    Raises:
        ConfigError: the method is one of these.
    """
    if needs := METHODS[config.ssl.method].needs & {"labels", "domains"}:
        raise ConfigError(
            f"ssl.method = {config.ssl.method!r} needs {' and '.join(sorted(needs))} numbered alike at all sites, but "
            "they know nothing of each other: use it on one machine, or choose another --ssl.method"
        )


def unseen_domain(config: RunConfig, trainer: Trainer, watcher: Observer) -> DomainData | None:
    """The domain to probe, where the server has one: ``data.target`` of the pictures at its own ``data.path``."""
    if config.data.target is None:
        return None
    dataset = open_dataset(config.data, watcher)
    if config.data.target not in dataset.names:
        raise DataError(
            f"data.target = {config.data.target!r}: not on the server; {near(config.data.target, dataset.names)}"
        )
    return dataset[config.data.target].to(trainer.device)


def configurations(given: Mapping[str, Any]) -> tuple[RunConfig, DeployConfig]:
    """What the run is and how the deployment behaves, from Flower's flat run configuration.

    Raises:
        ConfigError: an unknown name, preset or method, or a value that is not allowed.
    """
    if text := given.get("config"):
        return RunConfig.from_dict(json.loads(str(text))), DeployConfig.from_dict(json.loads(str(given["deploy"])))
    preset = str(given.get("preset", "") or "")
    if preset and preset not in PRESETS:
        raise ConfigError(f"preset = {preset!r}: {near(preset, PRESETS)}")
    nested: dict[str, Any] = {}
    for key, value in given.items():
        if key not in ("preset", "method", "config", "deploy") and value != "":
            below: Any = value
            for name in reversed(key.split(".")):
                below = {name: below}
            nested = merge(nested, below)
    deploy = nested.pop("deploy", {})
    lists = {path for path, kind, _ in leaves(RunConfig) if "tuple" in str(kind)}
    for *sections, name in lists:
        place = reduce(lambda within, section: within.get(section, {}), sections, nested)
        if isinstance(place.get(name), str):
            place[name] = json.loads(place[name])
    named = merge(PRESETS[preset] if preset else {}, method_settings(str(given.get("method") or "") or None, "method"))
    return RunConfig.from_dict(merge(named, nested)), DeployConfig.from_dict(deploy)


class Log(Observer):
    """One JSON object a line, on standard error and in ``log.jsonl`` of the run, for who collects logs."""

    def __init__(self, folder: Path):
        self.path = folder / "log.jsonl"

    def say(self, event: str, **values: Any) -> None:
        """A line, with the time."""
        line = json.dumps({"time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "event": event, **values})
        print(line, file=sys.stderr, flush=True)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def begin(self, config: RunConfig, folder: Path, steps: Mapping[str, int]) -> None:
        """The run starts or goes on."""
        self.say("begin", run=config.hash, folder=str(folder), rounds=config.federation.rounds)

    def record(self, record: Record) -> None:
        """A round or an evaluation, in short: the records hold the rest."""
        kept = ("round", "loss", "conflict", "seconds", "failed", "privacy", "sent", "received")
        self.say(str(record["kind"]), **{key: record[key] for key in kept if key in record})

    def note(self, line: str) -> None:
        """Something an operator should know."""
        self.say("note", text=line)
