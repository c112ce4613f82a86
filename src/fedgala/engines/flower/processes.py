"""Flower's long-running programs, started with what a deployment's folder says, and started again when they end.

A program is a session of its own, so that all that it starts ends with it. SuperNodes in particular end by themselves:
an authenticated one that was killed is refused until the server has noticed, so starting it again is part of the job.
"""

import json
import os
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from fedgala.data.resolve import read_tree
from fedgala.engines.flower import warm
from fedgala.engines.flower.control import Control, environment, flower
from fedgala.engines.flower.deployment import Server, SiteFolder, is_loopback
from fedgala.engines.flower.frames import Frame
from fedgala.engines.flower.keys import check_valid
from fedgala.errors import ConfigError, DataError, FedgalaError

Say = Callable[[str], None]
READY = 60.0  # seconds that a SuperLink may take to answer
LONGEST = 60.0  # seconds between two starts
STEADY = 120.0  # seconds after which a program that ends is started again at once


def start(command: Sequence[str], home: Path, log: Path | None = None) -> "subprocess.Popen[bytes]":
    """Start a program in a session of its own, its output in `log` or where ours goes."""
    home.mkdir(parents=True, exist_ok=True)
    if log is None:
        return subprocess.Popen(command, env=environment(home), stdin=subprocess.DEVNULL, start_new_session=True)
    with log.open("ab") as file:
        return subprocess.Popen(
            command, env=environment(home), stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
        )


def stop(process: "subprocess.Popen[bytes]", seconds: float = 10.0) -> None:
    """End a program and all that it started: asked first, then killed."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # what outlived its leader


def listens_at(server: Server) -> str:
    """Where the server listens: `server.host` is a name for sites, here it is everywhere it must be."""
    if server.host == "localhost":
        return "127.0.0.1"
    return server.host if is_loopback(server.host) else "::" if ":" in server.host else "0.0.0.0"


def superlink_command(server: Server) -> list[str]:
    """How the server is started."""
    command = [flower("flower-superlink"), "--host", listens_at(server), "--port", str(server.port)]
    command += ["--database", str(server.folder / "flower.db"), "--disable-runtime-dependency-installation"]
    if not server.secure:
        return [*command, "--insecure"]
    files = {"--ssl-ca-certfile": "ca.crt", "--ssl-certfile": "server.pem", "--ssl-keyfile": "server.key"}
    return [
        *command,
        *(w for flag, name in files.items() for w in (flag, str(server.folder / name))),
        "--enable-supernode-auth",
    ]


def supernode_command(site: SiteFolder, data: Path, idle: float | None = None) -> list[str]:
    """How a site is started. What its client should know lies in a file, for paths may hold anything."""
    told = {"site": site.name, "data": str(data.resolve()), "state": str(site.folder / "state")}
    lines = [f"{name} = {json.dumps(value)}" for name, value in told.items()] + ([f"idle = {idle}"] if idle else [])
    (site.folder / "node.toml").write_text("\n".join(lines) + "\n")
    command = [flower("flower-supernode"), "--superlink", site.superlink, "--port", str(free_port())]
    command += ["--node-config", str(site.folder / "node.toml")]
    if not site.secure:
        return [*command, "--insecure"]
    key, authority = str(site.folder / "site.key"), str(site.folder / "ca.crt")
    return [*command, "--root-certificates", authority, "--auth-supernode-private-key", key]


def supervise(command: Callable[[], Sequence[str]], home: Path, say: Say, ready: Callable[[], None]) -> None:
    """Run a program for ever, with longer pauses while it keeps ending at once; `ready` is called after each start.

    Raises:
        KeyboardInterrupt: as it comes, or SIGTERM; the program has ended then.
    """
    pause = 1.0
    with terminated_as_interrupt():
        while True:
            began = time.monotonic()
            process = start(command(), home)
            try:
                ready()
                code = process.wait()
            finally:
                stop(process)
            pause = 1.0 if time.monotonic() - began > STEADY else min(LONGEST, 2 * pause)
            say(f"it ended with code {code}; starting it again in {pause:.0f} s")
            time.sleep(pause)


def run_superlink(server: Server, insist: bool, say: Say) -> None:
    """Serve until interrupted; the sites' keys are made known each time.

    Raises:
        ConfigError: an open server that others could reach, without insisting; a file is missing; the port is taken.
    """
    if not server.secure and not is_loopback(server.host) and not insist:
        raise ConfigError(f"this deployment is insecure and {server.host} can be reached from elsewhere: say --i-know")
    if server.secure:
        _check_private(server.folder / "server.key")
        check_valid(server.folder / "server.pem", "sign a new one with ca.key, docs/deploy.md says how")
        check_valid(server.folder / "ca.crt", "make a new deployment")
    _check_free(listens_at(server), server.port)
    control = Control(server, environment(server.folder / "flwr"))

    def ready() -> None:
        wait_for(server)
        control.register_all()
        say(f"the server answers at {server.address}; sites: {', '.join(server.sites)}")

    supervise(lambda: superlink_command(server), server.folder / "flwr", say, ready)


def run_site(site: SiteFolder, data: Path, say: Say) -> None:
    """Take part until interrupted, then end the worker too.

    Raises:
        ConfigError: there is nothing where the pictures should be, or a file of its part is missing.
        DataError: there are no pictures.
    """
    if not data.exists():
        raise ConfigError(f"--data {data}: there is no such folder or archive")
    if not any(folder.pictures for folder in read_tree(data).folders):
        raise DataError(f"--data {data}: there are no pictures in it")
    if site.secure:
        _check_private(site.folder / "site.key")
        check_valid(site.folder / "ca.crt", "ask for a new part of the deployment")
    say(f"site {site.name}: pictures in {data}, server {site.superlink}")
    try:
        supervise(lambda: supernode_command(site, data), site.folder / "flwr", say, lambda: None)
    finally:
        stop_worker(site)


def _check_private(key: Path) -> None:
    try:
        mode = key.stat().st_mode
    except OSError as error:
        raise ConfigError(f"{key}: {error.strerror}; copy the whole part of the deployment") from error
    if mode & 0o077:
        raise ConfigError(f"{key} can be read by others: chmod 600 {key}, and copy with modes (cp -p, scp -p)")


def _check_free(host: str, port: int) -> None:
    """Refuse a port that somebody else listens on: starting again and again would not help."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind((host, port))
        except OSError as error:
            raise ConfigError(f"port {port} can't be used: {(error.strerror or str(error)).lower()}") from error


def stop_worker(site: SiteFolder) -> None:
    """End the worker of a site, if one listens."""
    with suppress(warm.WorkerGone):
        warm.ask(warm.socket_path(site.name, site.folder / "state" / "sites" / site.name), Frame({"do": "stop"}), 2.0)


def wait_for(server: Server, seconds: float = READY) -> None:
    """Until the server answers.

    Raises:
        FedgalaError: it does not.
    """
    context = ssl.create_default_context(cafile=str(server.folder / "ca.crt")) if server.secure else None
    here = "127.0.0.1" if not is_loopback(server.host) or server.host == "localhost" else server.host
    url = f"{'https' if server.secure else 'http'}://{here}:{server.port}/health"
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with (
            suppress(urllib.error.URLError, ConnectionError, TimeoutError),
            urllib.request.urlopen(url, timeout=2, context=context),
        ):
            return
        time.sleep(0.2)
    raise FedgalaError(f"the server did not answer at {url} in {seconds:.0f} s: see its output")


def free_port() -> int:
    """A port of this machine that nobody uses now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@contextmanager
def terminated_as_interrupt() -> Iterator[None]:
    """SIGTERM, which systemd and containers send, ends things as Ctrl-C does."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
