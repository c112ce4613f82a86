"""Rounds without a folder: trainer, engine and server step, as `run.RoundLoop` plays them."""

from collections.abc import Sequence

import torch

from fedgala import server
from fedgala.api import num_parts
from fedgala.checkpoint import Snapshot
from fedgala.client import Trainer
from fedgala.config import RunConfig
from fedgala.data.domain import DomainData
from fedgala.engines.local import LocalEngine

CPU = torch.device("cpu")


def trainer_for(config: RunConfig, clients: Sequence[DomainData], classes: int = 2) -> Trainer:
    return Trainer(config, CPU, num_parts(clients), classes)


def begin(trainer: Trainer) -> Snapshot:
    return Snapshot(trainer.beginning(), {})


def play(trainer: Trainer, clients: Sequence[DomainData], rounds: int, start: Snapshot | None = None) -> Snapshot:
    """`rounds` more rounds."""
    config = trainer.config
    snapshot = start or begin(trainer)
    engine, state = LocalEngine(trainer, clients), snapshot.state
    engine.states = dict(snapshot.clients)
    for _ in range(rounds):
        chosen = server.participants(engine.clients(), config.federation.participation, config.seed, state.round + 1)
        updates = list(engine(state.broadcast(), chosen))
        done = state.round / config.federation.rounds
        layouts = trainer.model.layouts
        state, _ = server.server_step(state, updates, config.server, layouts.weights, layouts.statistics, done)
    return Snapshot(state, dict(engine.states))
