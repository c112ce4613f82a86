"""A worker: a process that carries out runs it is given, one after the other, and tells how far it is.

It stops after a whole round when told to, or when the next round would not end in time; it dies with its parent, so
that nothing is left behind by a parent that was killed.
"""

import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import connection, parent_process
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from fedgala.config import RunConfig
from fedgala.errors import FedgalaError
from fedgala.observe import Observer
from fedgala.records import Record
from fedgala.run import Run
from fedgala.studies.claims import Busy, Claim, claimed
from fedgala.studies.shift import KIND as SHIFT
from fedgala.studies.shift import measure_shift

TELL = 0.5  # seconds between two reports of progress
MEASURES: Mapping[str, Callable[[Run], Record]] = {SHIFT: measure_shift}
"""What can be measured on a finished run, by the kind of the record that it leaves."""


@dataclass(frozen=True)
class Task:
    """A run to carry out, and what to measure on it afterwards."""

    config: RunConfig
    measures: tuple[str, ...] = ()
    title: str = ""  # for people

    @property
    def name(self) -> str:
        """Its folder's: what the run is."""
        return self.config.folder.name

    @property
    def run(self) -> Run:
        """The run on disk."""
        return Run(self.config, self.config.folder)

    def missing(self) -> tuple[str, ...]:
        """The measures that have no record yet."""
        kinds = {record["kind"] for record in self.run.records.read()}
        return tuple(name for name in self.measures if name not in kinds)

    def trained(self) -> bool:
        """Whether all is recorded and the encoder is written; records alone, as committed ones are, will do too."""
        run, rounds = self.run, self.config.federation.rounds
        recorded = any(record["round"] == rounds for record in run.records.read("evaluation"))
        return recorded and (run.finished or not run.checkpoint_path.exists())

    def rounds(self) -> int:
        """How many rounds have been recorded."""
        return max((record["round"] for record in self.run.records.read("round")), default=0)

    def done(self) -> bool:
        """Whether nothing is left to do."""
        return self.trained() and not self.missing()


@dataclass(frozen=True)
class Message:
    """What a worker says: how far its run is, or how it ended."""

    kind: str  # progress, done, busy, failed, stopped
    rounds: float = 0.0  # done of the run, fractions included
    text: str = ""


class Stopped(Exception):
    """The run has to stop where it is; whole rounds are saved."""


class _Watch(Observer):
    """Tells the parent how far the run is, and stops it in time."""

    def __init__(self, send: Callable[[Message], None], stop: Event, deadline: float, claim: Claim, done: int):
        self.send, self.stop, self.deadline, self.claim = send, stop, deadline, claim
        self.done, self.steps, self.in_round, self.loss = done, 1, 0, ""
        self.told = self.round_began = time.monotonic()
        self.longest = 0.0

    def begin(self, config: RunConfig, folder: Path, steps: Mapping[str, int]) -> None:
        """How many steps a round has."""
        self.steps = max(1, sum(steps.values()))
        self.round_began = time.monotonic()

    def step(self) -> None:
        """Stop where a round has just begun and would not end in time, or where it must."""
        now = time.monotonic()
        if self.stop.is_set() or self.claim.lost.is_set() or now > self.deadline:
            raise Stopped
        if self.in_round == 0 and self.longest and now + self.longest > self.deadline:
            raise Stopped
        self.in_round += 1
        if now - self.told > TELL:
            self.told = now
            self.send(Message("progress", self.done + min(1.0, self.in_round / self.steps), self.loss))

    def record(self, record: Record) -> None:
        """A round is done; its time, evaluation and saving included, is what the next is expected to take."""
        if record["kind"] == "round":
            now = time.monotonic()
            self.longest, self.round_began = max(self.longest, now - self.round_began), now
            self.done, self.in_round, self.loss = record["round"], 0, f"loss {record['loss']:.2f}"
            self.send(Message("progress", self.done, self.loss))


def work(pipe: Connection, stop: Event, deadline: float, device: str, threads: int | None) -> None:
    """Carry out what comes through the pipe, until nothing more comes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it, and says when to stop
    threading.Thread(target=_die_with_parent, daemon=True).start()
    with suppress(EOFError, BrokenPipeError):
        while True:
            task: Task = pipe.recv()
            engine = replace(task.config.engine, device=device, threads=task.config.engine.threads or threads)
            pipe.send(_attempt(replace(task, config=replace(task.config, engine=engine)), pipe.send, stop, deadline))


def _attempt(task: Task, send: Callable[[Any], None], stop: Event, deadline: float) -> Message:
    from fedgala.api import train

    try:
        with claimed(task.config.folder) as claim:
            if not task.trained():
                try:
                    train(task.config, _Watch(send, stop, deadline, claim, task.rounds()))
                except Stopped:
                    return Message("busy" if claim.lost.is_set() else "stopped")
            if not task.trained():
                return Message("failed", text=f"{task.config.folder} has an encoder but lacks records: move it away")
            for name in task.missing():
                task.run.records.append(MEASURES[name](task.run))
            return Message("done", task.config.federation.rounds)
    except Busy as error:
        return Message("busy", text=str(error))
    except FedgalaError as error:
        return Message("failed", text=str(error))
    except Exception as error:
        (task.config.folder / "error.txt").write_text(traceback.format_exc())
        where = task.config.folder / "error.txt"
        return Message("failed", text=f"{type(error).__name__}: {error} ({where})")


def _die_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
