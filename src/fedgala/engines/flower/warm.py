"""A site's side of the worker: find it, or start it, and ask it. Leans on NumPy only, for it is started per message."""

import os
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import closing, suppress
from hashlib import blake2b
from pathlib import Path

from fedgala import __version__
from fedgala.engines.flower.frames import Frame, FrameError, receive, send

START = 120.0  # seconds that a worker may take to listen: it imports torch
HELLO = 5.0  # seconds in which a worker that has nothing to do answers


class WorkerGone(Exception):
    """There is no worker, it could not be started, or it ended before it answered; the message says which."""


def socket_path(name: str, folder: Path) -> Path:
    """Where the worker of a site listens: a short path (sockets allow some 100 characters) of this user's own.

    Raises:
        WorkerGone: the folder for sockets belongs to somebody else.
    """
    home = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()) / f"fedgala-{os.getuid()}"
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = home.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise WorkerGone(f"{home} is not a folder of this user alone")
    return home / f"{blake2b(f'{name} {folder.resolve()}'.encode(), digest_size=8).hexdigest()}.sock"


def ask(path: Path, request: Frame, seconds: float) -> Frame:
    """One request to the worker that listens at `path`.

    Raises:
        WorkerGone: nobody listens, or no answer came in time.
    """
    try:
        with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as connection:
            connection.settimeout(seconds)
            connection.connect(str(path))
            send(connection, request)
            return receive(connection)
    except TimeoutError as error:
        raise WorkerGone(f"no answer in {seconds:.0f} s") from error
    except (FrameError, OSError) as error:
        raise WorkerGone(f"{error.strerror or error}".lower()) from error


def start(name: str, data: str | None, folder: Path, path: Path, idle: float) -> "subprocess.Popen[bytes]":
    """A worker in a session of its own, so that it outlives the process that started it; its log lies in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "fedgala.engines.flower.worker", "--name", name, "--folder", str(folder)]
    command += ["--socket", str(path), "--idle", str(idle), *(["--data", data] if data is not None else [])]
    with (folder / "worker.log").open("ab") as log:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, close_fds=True
        )


def _usable(path: Path) -> bool:
    """Whether the worker behind a socket can be asked; one that can't is ended.

    One that does not say hello trains a round that nobody waits for any more, or hangs.
    """
    try:
        if ask(path, Frame({"do": "hello"}), HELLO).words.get("version") == __version__:
            return True
        ask(path, Frame({"do": "stop"}), HELLO)
    except WorkerGone:
        with suppress(OSError), closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as connection:
            connection.connect(str(path))
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            os.kill(struct.unpack("3i", credentials)[0], signal.SIGKILL)
    return False


def ensure(name: str, data: str | None, folder: Path, idle: float, wait: float = START) -> Path:
    """The socket of a worker of this version that listens, started if need be.

    Raises:
        WorkerGone: none could be had.
    """
    path = socket_path(name, folder)
    if path.exists() and _usable(path):
        return path
    process, end = start(name, data, folder, path, idle), time.monotonic() + wait
    while time.monotonic() < end:
        if process.poll() is not None:
            raise WorkerGone(f"the worker ended with code {process.returncode}: see {folder / 'worker.log'}")
        try:
            ask(path, Frame({"do": "hello"}), HELLO)
            return path
        except WorkerGone:
            time.sleep(0.05)
    raise WorkerGone(f"the worker did not listen in {wait:.0f} s: see {folder / 'worker.log'}")
