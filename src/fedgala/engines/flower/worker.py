"""A long-lived process beside a site's Flower node: it keeps device, pictures and trainer warm between messages.

Flower starts a new process for every message; that process asks this one over a Unix socket that only the same user may
open. It answers one request at a time, and ends by itself: when nobody has asked for a while, when another version
asks, or, by a watchdog, when a round passes its deadline, so that a hung round never blocks the next.
"""

import argparse
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from fedgala import __version__
from fedgala.engines.flower.frames import Frame, receive, send
from fedgala.engines.flower.site import Place, Site
from fedgala.errors import CheckpointError
from fedgala.observe import Observer
from fedgala.storage import locked

OVERDUE, TAKEN = 3, 4  # exit codes: a round passed its deadline; another worker is there
GRACE = 5.0  # seconds beyond a deadline, in which a client says so itself


class Watchdog:
    """Ends the process when a round is not done in time: a thread that hangs can't be stopped any other way."""

    def __init__(self, seconds: float):
        self._timer = threading.Timer(seconds, os._exit, [OVERDUE])
        self._timer.daemon = True

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()


class Said(Observer):
    """Notes go to the log of the site."""

    def note(self, line: str) -> None:
        """A line with the time."""
        print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}", file=sys.stderr, flush=True)


def serve(listener: socket.socket, answer: Callable[[Frame], Frame], idle: float) -> None:
    """Answer requests one after the other, until nobody asks for `idle` seconds or somebody asks to stop."""
    listener.settimeout(idle)
    while True:
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            return
        with connection, suppress(OSError):  # a client that went away is none of our concern
            connection.settimeout(GRACE)  # it sends at once, or it is no client of ours
            request = receive(connection)
            connection.settimeout(None)
            if request.words.get("do") == "stop":
                send(connection, Frame({"stopped": True}))
                return
            if request.words.get("do") == "hello":
                send(connection, Frame({"version": __version__, "pid": os.getpid()}))
                continue
            with Watchdog(float(request.words["deadline"]) + GRACE):
                found = answer(request)
            send(connection, found)


def listen(path: Path) -> socket.socket:
    """A socket that only this user may open; what a dead worker left is replaced."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)
    listener.listen(4)
    return listener


def main() -> None:
    """Run a worker until it is idle."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True)
    parser.add_argument("--data")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--idle", type=float, default=900.0)
    given = parser.parse_args()
    site = Site(Place(given.name, given.data, given.folder), Said())
    try:
        with locked(given.socket.with_suffix(".lock"), "another worker serves this site"):
            listener = listen(given.socket)
            with listener:
                serve(listener, site.answer, given.idle)
            given.socket.unlink(missing_ok=True)
    except CheckpointError as error:
        Said().note(str(error))
        sys.exit(TAKEN)


if __name__ == "__main__":
    main()
