"""Who works on which run, where several processes and machines share one folder.

A claim is a file in the run's folder that its holder keeps a lock on and touches every few seconds. The system gives a
lock back when its holder dies, so on one machine (and on shared disks that pass locks on, as NFS 4 does) a dead holder
is known at once. Where a disk keeps locks to each machine, the other machine's touch tells: a claim of another machine
is respected while it is fresh by the disk's own clock, and taken over when it is stale. Two that take over at the same
moment both write their name and look again after a while: the later one stays, and the other leaves. Who comes back
from a long sleep and finds another's name has lost, and stops.
"""

import json
import os
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from fedgala.errors import CheckpointError
from fedgala.storage import LOCKS, locked

NAME = ".claim"
BEAT = 15.0  # seconds between touches
STALE = 120.0  # seconds without a touch after which another machine's holder is taken for dead
SETTLE = 0.2  # seconds in which two that take over at once see each other


class Busy(CheckpointError):
    """Another process has the run."""


@dataclass
class Claim:
    """A run that is ours, as long as `lost` is not set."""

    path: Path
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    lost: threading.Event = field(default_factory=threading.Event)
    _done: threading.Event = field(default_factory=threading.Event)

    def write(self) -> None:
        """Put our name into the file, in place: the lock is on this very file."""
        self.path.write_text(json.dumps({"machine": machine(), "process": os.getpid(), "token": self.token}))

    def ours(self) -> bool:
        """Whether the file still has our name."""
        return read(self.path).get("token") == self.token

    def beat(self, every: float) -> None:
        """Touch the file until `close`; stop where it has another's name."""
        while not self._done.wait(every):
            with suppress(OSError):  # a disk that is away for a moment is not a lost claim
                if not self.ours():
                    self.lost.set()
                    return
                os.utime(self.path)

    def close(self) -> None:
        """Give the run back: the file stays, without a name."""
        self._done.set()
        with suppress(OSError):
            if self.ours():
                self.path.write_text("{}")


@contextmanager
def claimed(folder: Path, beat: float = BEAT, stale: float = STALE, settle: float = SETTLE) -> Iterator[Claim]:
    """Hold the run in `folder` for this process.

    Raises:
        Busy: another process has it, here or elsewhere.
        CheckpointError: the folder can't be written.
    """
    claim = Claim(folder / NAME)
    with _lock(claim.path):
        if held(claim.path, stale):
            raise Busy(f"{folder} is in use on another machine")
        claim.write()
        time.sleep(settle)
        if not claim.ours():
            raise Busy(f"{folder} was taken by another machine at the same moment")
        keeper = threading.Thread(target=claim.beat, args=(beat,), daemon=True)
        keeper.start()
        try:
            yield claim
        finally:
            claim.close()
            keeper.join()


def held(path: Path, stale: float) -> bool:
    """Whether somebody holds a claim that we could lock: has touched it lately, and is on another machine or alive."""
    owner = read(path)
    if not owner or _age(path) >= stale:
        return False
    if owner.get("machine") != machine():
        return True
    return owner.get("process") != os.getpid() and _alive(owner.get("process"))  # a disk that keeps no locks at all


def read(path: Path) -> dict[str, Any]:
    """What is in a claim; one that is half written has no holder yet, and its writer looks again."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    try:
        with locked(path, "busy"):
            yield
    except CheckpointError as error:
        raise Busy(f"{path.parent} is in use by another process") if str(error) == "busy" else error from error


def _age(path: Path) -> float:
    """Seconds since `path` was touched, by the clock of the disk it lies on: machines may disagree about the time."""
    probe = path.with_name(f"{NAME}.{uuid.uuid4().hex[:8]}")
    try:
        probe.touch()
        return probe.stat().st_mtime - path.stat().st_mtime
    finally:
        probe.unlink(missing_ok=True)


def _alive(process: object) -> bool:
    try:
        os.kill(int(str(process)), 0)
    except (OSError, ValueError):
        return False
    return True


@cache
def machine() -> str:
    """What all processes under one kernel have in common, and no others: locks are theirs to share.

    Where the system has none (Windows) every process is a machine by itself, and staleness decides.
    """
    if not LOCKS:
        return uuid.uuid4().hex
    boot = Path("/proc/sys/kernel/random/boot_id")
    return boot.read_text().strip() if boot.exists() else f"{uuid.getnode():x}"
