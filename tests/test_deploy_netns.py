"""Two hosts with addresses of their own, in network namespaces of this machine: TLS, and a link that drops.

``make test-slow``; needs root and iproute2, and says so where either is missing.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="deployments need fedgala[flower]")

from fedgala.engines.flower.demo import write_pictures
from fedgala.engines.flower.deployment import Server, create
from fedgala.records import Records

pytestmark = pytest.mark.slow

SERVER, SITES = "10.77.0.1", "10.77.0.2"
COMMAND = "import sys; from fedgala.cli import main; main()"


def ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"network namespaces are not permitted here: ip {' '.join(words)}: {done.stderr.strip()}")


@pytest.fixture
def hosts() -> Iterator[tuple[str, str]]:
    """The names of two namespaces with a link between them."""
    if shutil.which("ip") is None or os.geteuid():
        pytest.skip("two hosts on one machine need root and iproute2")
    names = f"fg{os.getpid()}a", f"fg{os.getpid()}b"
    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", "fgl0", "netns", names[0], "type", "veth", "peer", "name", "fgl1", "netns", names[1])
        for name, link, address in ((names[0], "fgl0", SERVER), (names[1], "fgl1", SITES)):
            for words in (
                ["addr", "add", f"{address}/24", "dev", link],
                ["link", "set", link, "up"],
                ["link", "set", "lo", "up"],
            ):
                ip("-n", name, *words)
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


@pytest.fixture
def at(tmp_path: Path) -> Iterator[Callable[..., "subprocess.Popen[bytes]"]]:
    """Starts ``fedgala deploy ...`` on a host; all of them end with the test."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(host: str, *words: str) -> "subprocess.Popen[bytes]":
        command = ["ip", "netns", "exec", host, sys.executable, "-c", COMMAND, "deploy", *words]
        with (tmp_path / f"{len(processes)}.log").open("wb") as log:
            processes.append(subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True))
        return processes[-1]

    yield start
    for process in reversed(processes):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
    for process in processes:
        process.wait(60)
    for log in sorted(tmp_path.glob("*.log")):
        print(f"--- {log.name}\n{log.read_text()[-1500:]}")


def until(condition: Callable[[], bool], seconds: float = 180.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.1)


def rounds(server: Server) -> int:
    return sum(len(Records(path).read("round")) for path in server.folder.glob("runs/*/records.jsonl"))


def test_two_hosts_and_a_link_that_drops_and_returns(
    hosts: tuple[str, str], at: Callable[..., "subprocess.Popen[bytes]"], tmp_path: Path
) -> None:
    pictures, _ = write_pictures(tmp_path / "pictures")
    server = create(tmp_path / "d", ["cartoon", "photo"], SERVER, 8443, secure=True, insist=False)
    at(hosts[0], "superlink", str(server.folder))
    for name in ("cartoon", "photo"):
        at(hosts[1], "site", str(tmp_path / "d" / "sites" / name), "--data", str(pictures / name / name))
    words = ["--preset", "cpu", "--rounds", "4", "--batch-size", "32", "--threads", "1", "--patience", "120"]
    until(lambda: "the server answers" in (tmp_path / "0.log").read_text())
    run = at(hosts[0], "run", str(server.folder), *words, "--deadline", "90")
    until(lambda: rounds(server) == 1)
    time.sleep(1)
    ip("-n", hosts[1], "link", "set", "fgl1", "down")
    time.sleep(8)
    during = rounds(server)
    ip("-n", hosts[1], "link", "set", "fgl1", "up")
    until(lambda: run.poll() is not None, 400)
    assert run.returncode == 0 and during < 4 and rounds(server) == 4
    assert len(list(server.folder.glob("runs/*/encoder.safetensors"))) == 1
