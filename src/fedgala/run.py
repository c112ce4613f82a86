"""A run: its folder on disk, and the round loop, which knows neither devices nor transport.

The folder of a run is named by its configuration. The same configuration finds its folder again: what is finished is
returned, what is not is finished, with the same bits as if it had never stopped (on a CPU, with the same threads).
"""

import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Protocol

from fedgala import checkpoint, privacy, server
from fedgala.checkpoint import Snapshot
from fedgala.config import RunConfig
from fedgala.errors import CheckpointError
from fedgala.export import load_encoder
from fedgala.memory import peak_memory
from fedgala.messages import Broadcast, ClientUpdate, LocalState, ServerState
from fedgala.models import ResNet
from fedgala.observe import Observer
from fedgala.parameters import Layouts
from fedgala.records import Record, Records
from fedgala.storage import locked, write_private, write_text
from fedgala.toml import to_toml

COSINES = 64  # clients up to which a round's record holds the cosines between them


@dataclass(frozen=True)
class Run:
    """A run on disk."""

    config: RunConfig
    folder: Path

    @cached_property
    def records(self) -> Records:
        """What happened, round by round."""
        return Records(self.folder / "records.jsonl")

    @property
    def checkpoint_path(self) -> Path:
        """Where the state between two rounds is kept."""
        return self.folder / "checkpoint.safetensors"

    @property
    def encoder_path(self) -> Path:
        """Where the trained encoder is; the file exists when the run is finished."""
        return self.folder / "encoder.safetensors"

    @property
    def noise_key_path(self) -> Path:
        """Where the secret is that privacy's noise is drawn from, while the run lasts."""
        return self.folder / "noise.key"

    def noise_key(self) -> bytes:
        """The secret that privacy's noise is drawn from: random, and kept so that a run that goes on repeats itself.

        Raises:
            CheckpointError: the file is damaged.
        """
        path = self.noise_key_path
        if not path.exists():
            write_private(path, secrets.token_hex(32).encode())
        try:
            key = bytes.fromhex(path.read_text())
        except ValueError:
            key = b""
        if len(key) != 32:
            raise CheckpointError(f"{path} does not hold 64 hex digits; remove it, and the run goes on with a new one")
        return key

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to do."""
        return self.encoder_path.exists()

    @cached_property
    def encoder(self) -> ResNet:
        """The trained encoder, ready to use."""
        return load_encoder(self.encoder_path)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """The folder, made if need be, for this process alone."""
        with locked(self.folder / ".lock", f"{self.folder} is in use by another process"):
            write_text(self.folder / "config.toml", to_toml(self.config))
            yield


class Engine(Protocol):
    """Runs the clients of a round somewhere. `states` is what clients keep, where the engine has it at hand."""

    states: dict[str, LocalState]

    def clients(self) -> Sequence[str]:
        """The names of the clients that there are now."""

    def __call__(
        self, broadcast: Broadcast, clients: Sequence[str], on_step: Callable[[], None]
    ) -> Iterable[ClientUpdate]:
        """The updates of `clients`, in any order, but for those that failed."""

    def notes(self) -> Record:
        """What the engine has to add to the record of the round it has just run."""


@dataclass
class RoundLoop:
    """The server's rounds, from the last checkpoint to the last round.

    A round counts when everything about it is recorded; until then an interruption goes back to the round before.
    """

    run: Run
    engine: Engine
    layouts: Layouts
    evaluate: Callable[[ServerState], Record] | None  # None where the server has no pictures
    metadata: Mapping[str, str]  # what a checkpoint must belong to
    watcher: Observer
    saving: float = 0.05  # largest share of the time that checkpoints may take; infinite saves after every round
    _saved_round: int = field(default=0, init=False)
    _saved_at: float = field(default_factory=time.monotonic, init=False)
    _saving: float = field(default=0.0, init=False)  # seconds that the last checkpoint took
    _took_part: Counter[str] = field(default_factory=Counter, init=False)  # rounds by client, where privacy counts them

    def play(self, initial: ServerState) -> ServerState:
        """All rounds that are missing; `initial` is the global model where there is no checkpoint yet.

        Raises:
            FedgalaError: a client failed, a file is damaged or can't be written.
            KeyboardInterrupt: as it comes. In both cases the last whole round has been saved.
        """
        snapshot = self._start(initial)
        try:
            while snapshot.state.round < self.run.config.federation.rounds:
                snapshot = self._round(snapshot)
                if time.monotonic() - self._saved_at >= self._saving / self.saving:
                    self._save(snapshot)
        finally:
            self._save(snapshot)
        self.run.noise_key_path.unlink(missing_ok=True)  # it could take the noise away, and is not needed any more
        return snapshot.state

    def _start(self, initial: ServerState) -> Snapshot:
        if self.run.checkpoint_path.exists():
            snapshot = checkpoint.load(self.run.checkpoint_path, self.layouts, self.metadata)
            self._saved_round = snapshot.state.round
            self.run.records.rewind(snapshot.state.round)
            if self.run.config.privacy.noise:
                self._took_part.update(name for record in self.run.records.read("round") for name in record["clients"])
            self.engine.states = dict(snapshot.clients)
            self.watcher.note(f"goes on after round {snapshot.state.round}")
            return snapshot
        write_text(self.run.records.path, "")
        self._evaluate(initial)
        return Snapshot(initial, {})

    def _round(self, snapshot: Snapshot) -> Snapshot:
        config, before, began = self.run.config, snapshot.state, time.monotonic()
        chosen = server.participants(
            self.engine.clients(), config.federation.participation, config.seed, before.round + 1
        )
        updates = list(self.engine(before.broadcast(), chosen, self.watcher.step))
        progress = before.round / config.federation.rounds
        state, aggregate = server.server_step(
            before, updates, config.server, self.layouts.weights, self.layouts.statistics, progress
        )
        state, spent = self._hidden(before, state, aggregate)
        record = round_record(state.round, updates, aggregate, time.monotonic() - began)
        self._record({**record, **spent, **self.engine.notes()})
        every = config.probe.every
        if state.round == config.federation.rounds or (every and state.round % every == 0):
            self._evaluate(state)
        return Snapshot(state, dict(self.engine.states))

    def _hidden(
        self, before: ServerState, after: ServerState, aggregate: server.Aggregate
    ) -> tuple[ServerState, Record]:
        """The state with privacy's noise, if there is any, and what has been spent with it."""
        config = self.run.config
        bounds, count, known = config.privacy, len(aggregate.weights), bool(self._took_part)
        if not bounds.noise:
            return after, {}
        self._took_part.update([*aggregate.weights, *aggregate.rejected])
        scale = bounds.noise * privacy.sensitivity(count, config.agreement_share)
        deviations = scale * bounds.clip, scale * bounds.statistics_clip
        layouts = self.layouts.weights, self.layouts.statistics
        state = privacy.noised(before, after, layouts, deviations, self.run.noise_key())
        spent = privacy.epsilon_of(bounds.noise, max(self._took_part.values()), bounds.delta)
        if not known:
            whole = privacy.epsilon_of(bounds.noise, config.federation.rounds, bounds.delta)
            length = deviations[0] * sum(segment.numel for segment in layouts[0].segments) ** 0.5
            self.watcher.note(
                f"privacy: noise of length {length:.3g} on an update of at most {bounds.clip:g} with {count} clients; "
                f"epsilon {whole:.3g} after {config.federation.rounds} rounds, at delta {bounds.delta:g}"
            )
        return state, {"privacy": {"epsilon": spent, "delta": bounds.delta, "deviations": list(deviations)}}

    def _evaluate(self, state: ServerState) -> None:
        if self.evaluate is None:
            return
        self.watcher.working("evaluating")
        self._record(self.evaluate(state))

    def _record(self, record: Record) -> None:
        self.run.records.append(record)
        self.watcher.record(record)

    def _save(self, snapshot: Snapshot) -> None:
        if snapshot.state.round == self._saved_round:
            return
        began = time.monotonic()
        self.run.records.sync()
        checkpoint.save(self.run.checkpoint_path, snapshot, self.layouts, self.metadata)
        self._saved_round, self._saved_at = snapshot.state.round, time.monotonic()
        self._saving = self._saved_at - began


def round_record(number: int, updates: Sequence[ClientUpdate], aggregate: server.Aggregate, seconds: float) -> Record:
    """The record of a round: means over the clients, and each client by itself."""
    clients: dict[str, Record] = {
        update.client: {
            **update.metrics,
            "samples": update.num_samples,
            "weight": aggregate.weights.get(update.client, 0.0),
            "conflicts": [round(share, 4) for share in update.conflicts],
        }
        for update in updates
    }
    measured: Record = {"seconds": seconds, "peak_memory": peak_memory()}
    record: Record = {"kind": "round", "round": number, **measured, "clients": clients}
    for name in ("loss", "conflict"):
        values = [client[name] for client in clients.values() if name in client]
        if values:
            record[name] = sum(values) / len(values)
    if len(clients) <= COSINES:
        record["cosines"] = [[round(c, 4) for c in row] for row in aggregate.cosines.tolist()]
    if aggregate.rejected:
        record["rejected"] = list(aggregate.rejected)
    return record
