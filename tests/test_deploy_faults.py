"""Real processes on this machine, and what goes wrong with them: nothing is lost, nothing goes unsaid.

Minutes in all: ``make test-slow``. Each test runs a server and its sites with TLS and keys, on loopback.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="deployments need fedgala[flower]")

from fedgala import api
from fedgala.config import RunConfig
from fedgala.engines.flower import warm
from fedgala.engines.flower.control import Control, environment
from fedgala.engines.flower.demo import configuration, same_encoder, write_pictures
from fedgala.engines.flower.deployment import Server, create, read_site
from fedgala.engines.flower.frames import Frame
from fedgala.engines.flower.operate import operate
from fedgala.engines.flower.processes import (
    free_port,
    start,
    stop,
    stop_worker,
    superlink_command,
    supernode_command,
    wait_for,
)
from fedgala.engines.flower.settings import DeployConfig
from fedgala.errors import FedgalaError, TrainingError
from fedgala.records import Record
from fedgala.run import Run

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")]

SITES = ("cartoon", "photo")


@dataclass
class Machines:
    """A server and its sites as processes, to be killed and started again."""

    server: Server
    pictures: Path
    processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)

    @property
    def control(self) -> Control:
        return Control(self.server, environment(self.server.folder / "flwr"))

    def folder(self, name: str) -> Path:
        return self.server.folder.parent / "sites" / name

    def worker(self, name: str) -> Path:
        return warm.socket_path(name, self.folder(name) / "state" / "sites" / name)

    def start_server(self) -> None:
        log = self.server.folder / "superlink.log"
        self.processes["server"] = start(superlink_command(self.server), self.server.folder / "flwr", log)
        wait_for(self.server)
        self.control.register_all()

    def start_site(self, name: str, **environment: str) -> None:
        site = read_site(self.folder(name))
        data = self.pictures / name / name
        before = dict(os.environ)
        os.environ.update(environment)
        try:
            self.processes[name] = start(supernode_command(site, data), site.folder / "flwr", site.folder / "site.log")
        finally:
            os.environ.clear()
            os.environ.update(before)

    def kill(self, name: str) -> None:
        """As a power cut would: the process and all that it started."""
        process = self.processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def children(self, name: str, word: str) -> list[int]:
        """The processes that a machine started, and those that they did, whose command line holds `word`."""
        parents = {}
        for place in Path("/proc").glob("[0-9]*"):  # `ps` reads all command lines, which takes long on a busy machine
            with suppress(OSError):
                parents[int(place.name)] = int((place / "stat").read_text().rpartition(")")[2].split()[1])
        found = {self.processes[name].pid}
        while more := {pid for pid, parent in parents.items() if parent in found} - found:
            found |= more
        return [pid for pid in found if word in command_line(pid)]

    def run(self, config: RunConfig, **settings: Any) -> Run:
        """Operate a run; its settings are those of tests, which do not wait."""
        told = DeployConfig(**{"min_sites": 2, "deadline": 120.0, "patience": 400.0, **settings})
        return operate(self.server, config, told, False, self.said.append)

    def run_aside(self, config: RunConfig, **settings: Any) -> "Aside":
        """The same, while the test does something else."""
        return Aside(lambda: self.run(config, **settings))

    def close(self) -> None:
        for name in SITES:
            if self.folder(name).exists():
                stop_worker(read_site(self.folder(name)))
        for process in self.processes.values():
            stop(process)


class Aside:
    """A call in a thread, whose outcome is asked for later."""

    def __init__(self, call: Callable[[], Run]):
        self.outcome: Run | BaseException | None = None

        def run() -> None:
            try:
                self.outcome = call()
            except BaseException as error:
                self.outcome = error

        self.thread = threading.Thread(target=run)
        self.thread.start()

    def result(self, seconds: float = 900.0) -> Run:
        self.thread.join(seconds)
        assert not self.thread.is_alive(), "the run did not end"
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        assert self.outcome is not None
        return self.outcome


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pictures(tmp_path_factory.mktemp("shapes"))[0]


@pytest.fixture
def machines(tmp_path: Path, pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    os.environ["XDG_RUNTIME_DIR"] = str(tmp_path_factory.mktemp("r"))
    server = create(tmp_path / "d", [*SITES, "stranger"], "127.0.0.1", free_port(), secure=True, insist=False)
    found = Machines(replace(server, sites=SITES), pictures)
    (server.folder / "keys" / "stranger.pub").unlink()
    try:
        found.start_server()
        for name in SITES:
            found.start_site(name)
        yield found
    finally:
        found.close()
        print("\n".join(found.said))
        for path in (server.folder / "superlink.log", *(found.folder(name) / "site.log" for name in SITES)):
            print(f"--- {path}\n{path.read_text()[-1500:] if path.exists() else ''}")


@pytest.fixture
def config(pictures: Path) -> RunConfig:
    """Small and quick; no pictures on the server."""
    plain = configuration(pictures, 4)
    return replace(plain, data=replace(plain.data, target=None), name="there")


@pytest.fixture
def whole(config: RunConfig, pictures: Path, tmp_path: Path) -> Callable[[int], Run]:
    """The same run on one machine."""

    def train(rounds: int) -> Run:
        together = tmp_path / "together"
        together.mkdir()
        for name in SITES:
            (together / name).symlink_to(pictures / name / name)
        data = replace(config.data, path=str(together))
        federation = replace(config.federation, rounds=rounds)
        return api.train(replace(config, data=data, federation=federation, out=str(tmp_path), name="whole"))

    return train


def records(machines: Machines, config: RunConfig) -> list[Record]:
    return Run(config, replace(config, out=str(machines.server.folder / config.out)).folder).records.read("round")


def until(condition: Callable[[], bool], seconds: float = 400.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def command_line(pid: int) -> str:
    """Its words; none for a process that has ended, also where it waits to be buried."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def test_a_client_process_that_is_killed_costs_its_site_a_round_at_most(
    machines: Machines, config: RunConfig, whole: Callable[[int], Run]
) -> None:
    aside = machines.run_aside(config)
    until(lambda: len(records(machines, config)) >= 1)
    until(lambda: bool(machines.children("photo", "flwr-clientapp")))
    for pid in machines.children("photo", "flwr-clientapp"):
        os.kill(pid, signal.SIGKILL)
    run = aside.result()
    assert [sorted(record["clients"]) for record in run.records.read("round")] == [sorted(SITES)] * 4
    assert same_encoder(run, whole(4))  # it was asked again, and answered as it would have


def test_a_worker_that_is_killed_is_replaced(
    machines: Machines, config: RunConfig, whole: Callable[[int], Run]
) -> None:
    aside = machines.run_aside(config)
    until(lambda: len(records(machines, config)) >= 1)
    pid = int(warm.ask(machines.worker("photo"), Frame({"do": "hello"}), 60).words["pid"])
    os.kill(pid, signal.SIGKILL)
    run = aside.result()
    assert same_encoder(run, whole(4))
    assert int(warm.ask(machines.worker("photo"), Frame({"do": "hello"}), 60).words["pid"]) != pid


def test_a_node_that_is_killed_comes_back_and_goes_on_with_its_own_state(
    machines: Machines, config: RunConfig, whole: Callable[[int], Run]
) -> None:
    aside = machines.run_aside(config)
    until(lambda: len(records(machines, config)) >= 2)
    until(lambda: bool(machines.children("photo", "flwr-clientapp")))  # in the middle of a round
    machines.kill("photo")
    time.sleep(1)
    end = time.monotonic() + 400
    while time.monotonic() < end and not aside.outcome:  # refused until the server has noticed that it was gone
        if "photo" not in machines.processes or machines.processes["photo"].poll() is not None:
            machines.start_site("photo")
        time.sleep(3)
    run = aside.result()
    assert same_encoder(run, whole(4))


def test_the_server_is_killed_and_the_same_command_goes_on(
    machines: Machines, config: RunConfig, whole: Callable[[int], Run]
) -> None:
    config = replace(config, federation=replace(config.federation, rounds=7))
    aside = machines.run_aside(config)
    until(lambda: len(records(machines, config)) >= 2)
    until(lambda: bool(machines.children("server", "flwr-serverapp")))
    orphans = machines.children("server", "flwr-serverapp")
    machines.kill("server")
    until(lambda: not any(map(command_line, orphans)), 120)  # it held the run's folder
    until(lambda: aside.outcome is not None)
    with pytest.raises(FedgalaError, match="the same command goes on"):
        aside.result()
    machines.start_server()
    for name in SITES:
        if machines.processes[name].poll() is not None:
            machines.start_site(name)
    run = machines.run(config)
    assert [record["round"] for record in run.records.read("round")] == list(range(1, 8))
    assert same_encoder(run, whole(7))


def test_the_serverapp_is_killed_and_the_same_command_goes_on(
    machines: Machines, config: RunConfig, whole: Callable[[int], Run]
) -> None:
    config = replace(config, federation=replace(config.federation, rounds=7))
    aside = machines.run_aside(config)
    until(lambda: len(records(machines, config)) >= 2)
    until(lambda: bool(machines.children("server", "flwr-serverapp")))
    for pid in machines.children("server", "flwr-serverapp"):
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(TrainingError, match="ended without a reason"):
        aside.result()
    assert same_encoder(machines.run(config), whole(7))


def test_two_rounds_then_everything_is_killed_then_two_more(
    machines: Machines, config: RunConfig, whole: Callable[[int], Run]
) -> None:
    aside = machines.run_aside(config)
    until(lambda: len(records(machines, config)) >= 2)
    for name in SITES:
        pid = int(warm.ask(machines.worker(name), Frame({"do": "hello"}), 60).words["pid"])
        os.kill(pid, signal.SIGKILL)
        machines.kill(name)
    machines.kill("server")
    until(lambda: aside.outcome is not None)
    machines.start_server()
    for name in SITES:
        machines.start_site(name)
    end = time.monotonic() + 400
    again = machines.run_aside(config)
    while time.monotonic() < end and not again.outcome:
        for name in SITES:
            if machines.processes[name].poll() is not None:
                machines.start_site(name)
        time.sleep(2)
    assert same_encoder(again.result(), whole(4))


def test_a_site_that_hangs_is_named_and_does_not_block_the_next_round(machines: Machines, config: RunConfig) -> None:
    aside = machines.run_aside(config, min_sites=1, sites=2, deadline=45.0)
    until(lambda: len(records(machines, config)) >= 1)
    pid = int(warm.ask(machines.worker("photo"), Frame({"do": "hello"}), 60).words["pid"])
    os.kill(pid, signal.SIGSTOP)
    run = aside.result()
    found = run.records.read("round")
    failed = [record["round"] for record in found if "photo" in record.get("failed", {})]
    assert len(failed) <= 2, found  # the worker that hangs is ended, and another takes part again
    assert "photo" in found[-1]["clients"]


BAD = """
import sys

if any("flwr-clientapp" in word for word in sys.orig_argv):
    import json
    from pathlib import Path

    import numpy as np

    from fedgala.engines.flower import client
    from fedgala.engines.flower.frames import Frame

    honest, first = client.answered, Path(__file__).with_name("first.json")

    def answered(request, context, seconds):
        answer = honest(request, context, seconds)
        number, words, arrays = request.words["round"], dict(answer.words), dict(answer.arrays)
        name = next(name for name in arrays if name.endswith("conv1.weight"))
        if number == 1:
            first.write_text(json.dumps(words))
        elif number == 2:
            arrays[name] = arrays[name] * np.float32("nan")
        elif number == 3:
            arrays[name] = arrays[name][:1]
        elif number == 4:
            arrays["extra"] = np.zeros(10**7, np.float32)
        elif number == 5:
            words = json.loads(first.read_text())
        elif number == 6:
            words["round"] = 5
        return Frame(words, arrays)

    client.answered = answered
"""


def test_a_site_that_answers_wrongly_is_named_and_the_others_go_on(
    machines: Machines, config: RunConfig, tmp_path: Path
) -> None:
    stop(machines.processes.pop("photo"))  # it says goodbye, so its key may come back at once
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "sitecustomize.py").write_text(BAD)
    again = [str(tmp_path / "bad"), *filter(None, [os.environ.get("PYTHONPATH")])]
    machines.start_site("photo", PYTHONPATH=os.pathsep.join(again))
    longer = replace(config, federation=replace(config.federation, rounds=7))
    aside = machines.run_aside(longer, min_sites=1, sites=2)
    found = aside.result().records.read("round")
    reasons = [record.get("failed", {}).get("photo", "") for record in found]
    for reason, expected in zip(
        reasons,
        ["", "not finite", "has shape (1,", "bytes of arrays, at most", "another question", "round 5 instead of 6", ""],
        strict=True,
    ):
        assert expected in reason and bool(expected) == bool(reason), reasons
    assert all("cartoon" in record["clients"] for record in found)
    assert "photo" in found[-1]["clients"]  # one wrong answer shuts nobody out
    assert sum("failed photo (" in line for line in machines.said) == 5


def test_a_site_that_joins_late_takes_part_from_then_on(machines: Machines, config: RunConfig) -> None:
    longer = replace(config, federation=replace(config.federation, rounds=8))
    stop(machines.processes.pop("photo"))  # it says goodbye, so its key may come back at once
    aside = machines.run_aside(longer, min_sites=1, sites=1)
    until(lambda: len(records(machines, longer)) >= 2)
    machines.start_site("photo")
    found = aside.result().records.read("round")
    there = ["photo" in record["clients"] for record in found]
    assert not any(there[:2]) and there[-1] and there == sorted(there), there
    joined = there.index(True)
    assert found[joined]["sent"]["photo"] > 1.8 * found[joined]["sent"]["cartoon"]  # with the reference


def test_strangers_stay_outside(machines: Machines, config: RunConfig, tmp_path: Path) -> None:
    (machines.pictures / "stranger").mkdir(exist_ok=True)
    machines.start_site("stranger")  # its key was never made known
    until(lambda: machines.processes["stranger"].poll() is not None)
    assert machines.processes.pop("stranger").returncode != 0
    other = create(tmp_path / "other", ["photo"], "127.0.0.1", machines.server.port, secure=True, insist=False)
    site = read_site(tmp_path / "other" / "sites" / "photo")  # its authority is another one
    log = site.folder / "site.log"
    process = start(supernode_command(site, machines.pictures), site.folder / "flwr", log)
    try:
        time.sleep(8)
        run = machines.run(replace(config, federation=replace(config.federation, rounds=1)))
        assert sorted(run.records.read("round")[0]["clients"]) == sorted(SITES)
        assert "certificate" in log.read_text().lower()
    finally:
        stop(process)
    assert other.port == machines.server.port


def test_a_site_whose_disk_is_full_says_so(machines: Machines, config: RunConfig) -> None:
    kept = machines.folder("photo") / "state"
    kept.mkdir(parents=True, exist_ok=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(kept)], check=False)
    if mounted.returncode:
        pytest.skip("a full disk needs a mount of its own, which is not permitted here")
    try:
        run = machines.run(config, min_sites=1, sites=2)
        failed = run.records.read("round")[0]["failed"]["photo"]
        assert "No space left" in failed and "what was saved before is intact" in failed
    finally:
        stop_worker(read_site(machines.folder("photo")))
        subprocess.run(["umount", "-l", str(kept)], check=False)


def test_a_quorum_that_is_lost_ends_the_run_with_its_reason(machines: Machines, config: RunConfig) -> None:
    aside = machines.run_aside(config, deadline=45.0, patience=30.0)
    until(lambda: len(records(machines, config)) >= 1)
    machines.kill("photo")
    with pytest.raises(TrainingError, match=r"(1 of (at least )?2 sites).*the same command goes on"):
        aside.result()


def test_the_command_ends_with_a_code_that_tells(machines: Machines, config: RunConfig, tmp_path: Path) -> None:
    code = "import sys; from fedgala.cli import main; main()"
    words = ["deploy", "run", str(machines.server.folder), "--preset", "cpu", "--rounds", "1", "--batch-size", "32"]
    words += ["--sites", "2"]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "round 1  loss" in done.stderr and "encoder.safetensors" in done.stdout
    told = subprocess.run(
        [sys.executable, "-c", code, "deploy", "status", str(machines.server.folder), "--json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = json.loads(told.stdout)
    known = [("cartoon", "online"), ("photo", "online"), ("stranger", "never seen")]
    assert [(it["site"], it["status"]) for it in found["sites"]] == known
    (run,) = found["runs"].values()
    assert run["finished"] and run["last_seen"] == dict.fromkeys(SITES, 1)
    bad = subprocess.run([sys.executable, "-c", code, *words, "--batch-size", "9999", "--patience", "45"],
                         capture_output=True, text=True, check=False)  # fmt: skip
    assert bad.returncode == 2 and "fewer than federation.batch_size" in bad.stderr.splitlines()[-1]
