"""Many runs, several at a time, each in a worker process of its own; doing them again finishes what is missing.

Any number of schedulers, on any number of machines, may do the same runs in the same folder: each run is claimed while
it is worked on. A run that fails, or takes its worker down with it, is reported and does not stop the others.
"""

import contextlib
import math
import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import connection
from multiprocessing.context import SpawnProcess
from typing import TYPE_CHECKING

from fedgala.studies.watch import Watcher
from fedgala.studies.work import Message, Task, work

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.synchronize import Event

AGAIN = 3.0  # seconds until a run that somebody else has is looked at again
PATIENCE = 60.0  # seconds that workers have to save their last whole round
NEVER = math.inf

_spawn = multiprocessing.get_context("spawn")


@dataclass
class Summary:
    """How the runs stand when the scheduler is done."""

    done: list[Task] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)  # by folder, why
    left: list[Task] = field(default_factory=list)  # out of time, or interrupted
    interrupted: bool = False


@dataclass
class _Worker:
    process: SpawnProcess
    pipe: "Connection"
    device: str
    task: Task | None = None


def carry_out(
    tasks: Sequence[Task], devices: Sequence[str], threads: int | None, watcher: Watcher, deadline: float = NEVER
) -> Summary:
    """All runs that are not done, one at a time on each of `devices`; equal runs once.

    Args:
        tasks: the runs; an earlier one is begun earlier.
        devices: one for each worker, such as cpu, cpu or cuda:0, cuda:1.
        threads: of a worker on a CPU, where the configuration does not say.
        watcher: told how far each run is.
        deadline: on the monotonic clock; no round is begun that would not end before.

    Ctrl-C and SIGTERM stop all runs and return; the last whole round of each has been saved.
    """
    distinct = list({task.config.folder: task for task in tasks}.values())
    scheduler = _Scheduler(distinct, devices, threads, watcher, deadline)
    with _gentle_signals():
        try:
            scheduler.run()
        except KeyboardInterrupt:
            scheduler.summary.interrupted = True
        finally:
            scheduler.close()
    summary = scheduler.summary
    known = {task.config.folder for task in summary.done}
    summary.left = [t for t in distinct if t.config.folder not in known and str(t.config.folder) not in summary.failed]
    return summary


class _Scheduler:
    def __init__(
        self, tasks: Sequence[Task], devices: Sequence[str], threads: int | None, watcher: Watcher, deadline: float
    ):
        self.summary, self.watcher, self.deadline, self.threads = Summary(), watcher, deadline, threads
        self.stop: Event = _spawn.Event()
        self.waiting: deque[Task] = deque()
        self.elsewhere: list[tuple[float, Task]] = []  # when to look again
        self.longest = 0.0  # of a run's start to its first whole round
        for task in tasks:
            if task.done():
                self.summary.done.append(task)
                watcher.finished(task, "done", "")
            else:
                self.waiting.append(task)
                watcher.waiting(task, task.rounds())
        self.free = deque(devices[: len(self.waiting)])
        self.workers: dict[Connection, _Worker] = {}

    def run(self) -> None:
        while (self.waiting or self.elsewhere or self._busy()) and not self._out_of_time():
            self._look_again()
            self._hand_out()
            for ready in connection.wait(list(self.workers), timeout=0.25) if self.workers else _nap():
                self._hear(self.workers[ready])  # type: ignore[index]
            self.watcher.tick()

    def close(self) -> None:
        """Let every worker save its last whole round, and end."""
        self.stop.set()
        for worker in self.workers.values():
            with contextlib.suppress(OSError):
                if worker.task is None:
                    worker.pipe.close()
        until = time.monotonic() + PATIENCE
        for worker in list(self.workers.values()):
            while worker.task is not None and time.monotonic() < until:
                if worker.pipe.poll(0.1):
                    self._hear(worker)
            worker.pipe.close()
            worker.process.join(max(0.1, until - time.monotonic()))
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
        self.watcher.close()

    def _busy(self) -> bool:
        return any(worker.task for worker in self.workers.values())

    def _out_of_time(self) -> bool:
        return not self._busy() and time.monotonic() >= self.deadline

    def _look_again(self) -> None:
        now = time.monotonic()
        for due, task in list(self.elsewhere):
            if now >= due:
                self.elsewhere.remove((due, task))
                self.waiting.append(task)

    def _hand_out(self) -> None:
        idle = [worker for worker in self.workers.values() if worker.task is None]
        while self.waiting and (idle or self.free) and time.monotonic() < self.deadline:
            task = self.waiting.popleft()
            if task.done():  # by somebody else, meanwhile
                self._settle(task, "done", "")
                continue
            worker = idle.pop() if idle else self._start(self.free.popleft())
            worker.task = task
            worker.pipe.send(task)
            self.watcher.begun(task)

    def _start(self, device: str) -> _Worker:
        ours, theirs = _spawn.Pipe()
        process = _spawn.Process(
            target=work, args=(theirs, self.stop, self.deadline, device, self.threads), daemon=True
        )
        with _ignored(signal.SIGINT, signal.SIGTERM):  # what a terminal sends to all is the parent's to answer
            process.start()
        theirs.close()
        worker = _Worker(process, ours, device)
        self.workers[ours] = worker
        return worker

    def _hear(self, worker: _Worker) -> None:
        try:
            message: Message = worker.pipe.recv()
        except (EOFError, OSError):
            self._bury(worker)
            return
        task = worker.task
        assert task is not None
        if message.kind == "progress":
            self.watcher.progress(task, message.rounds, message.text)
            return
        worker.task = None
        if message.kind == "busy":
            self.elsewhere.append((time.monotonic() + AGAIN, task))
            self.watcher.elsewhere(task)
        else:
            self._settle(task, message.kind, message.text)

    def _bury(self, worker: _Worker) -> None:
        """A worker that died takes its run with it; the next run gets a new one."""
        worker.process.join()
        del self.workers[worker.pipe]
        self.free.append(worker.device)
        if worker.task is not None:
            code = worker.process.exitcode or 0
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            task, worker.task = worker.task, None
            self._settle(task, "failed", f"its process died ({how}); run the study again to go on from its checkpoint")

    def _settle(self, task: Task, kind: str, text: str) -> None:
        if kind == "done":
            self.summary.done.append(task)
        elif kind == "failed":
            self.summary.failed[str(task.config.folder)] = text
        else:  # out of time: what has not begun would be, too
            self.waiting.clear()
            self.elsewhere.clear()
        self.watcher.finished(task, kind, text)


def _nap() -> "list[Connection]":
    time.sleep(0.25)
    return []


@contextlib.contextmanager
def _ignored(*signals: signal.Signals) -> Iterator[None]:
    try:
        before = {number: signal.signal(number, signal.SIG_IGN) for number in signals}
    except ValueError:  # not in the main thread, which is the one that hears signals
        before = {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _gentle_signals() -> Iterator[None]:
    """What a batch system sends before it kills is heard as Ctrl-C is."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def places(jobs: int | None, device: str) -> tuple[list[str], int | None]:
    """The devices that runs are shared out to, and the threads of each: a GPU takes one run, a CPU one for each core.

    Several runs on one GPU only take turns; with `jobs` they do.
    """
    import torch

    count = torch.cuda.device_count() if device in ("auto", "cuda") else 0
    if device == "auto" and count:
        return [f"cuda:{index % count}" for index in range(jobs or count)], None
    if device not in ("auto", "cpu"):
        return [device] * (jobs or 1), None
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return ["cpu"] * (jobs or cores), max(1, cores // (jobs or cores))
