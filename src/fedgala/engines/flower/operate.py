"""What the operator of a deployment does: start a run and follow it to its end, ask who is there and how far it is."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedgala.config import RunConfig
from fedgala.engines.flower.control import Control, environment
from fedgala.engines.flower.deployment import Server, write_app
from fedgala.engines.flower.settings import DeployConfig, check_together
from fedgala.errors import ConfigError, FedgalaError, TrainingError
from fedgala.run import Run

POLL = 0.5  # seconds between looks at the run's log
ASK = 20.0  # seconds between questions to Flower, each of which starts a program
ENDING = 1.0  # the same once the run has said that it ends
SILENT = 60.0  # seconds without an answer after which the server is taken for dead

Say = Callable[[str], None]


def operate(server: Server, config: RunConfig, settings: DeployConfig, resume: bool, say: Say) -> Run:
    """Start the run, or go on with it, and follow it until it ends.

    Raises:
        ConfigError: `resume`, and there is nothing to go on with.
        TrainingError: the run stopped, with the reason.
        FedgalaError: the server does not answer.
        KeyboardInterrupt: as it comes; the run has been stopped, and the same command goes on.
    """
    check_together(config, settings)
    if not Path(config.out).is_absolute():
        config = replace(config, out=str(server.folder / config.out))
    if config.data.target is None:  # the pictures are the sites' own, and not `data.path`
        config = replace(config, name=config.name or "sites")
    settings = replace(settings, sites=settings.sites or len(server.sites))
    run = Run(config, config.folder)
    if run.finished:
        say(f"already finished: {run.folder}")
        return run
    if resume and not run.checkpoint_path.exists():
        raise ConfigError(f"--resume: {run.folder} has no checkpoint; the same command without it starts the run")
    write_app(server.folder / "app", {"config": json.dumps(config.to_dict()), "deploy": json.dumps(settings.to_dict())})
    control = Control(server, environment(server.folder / "flwr"))
    log = Tail(run.folder / "log.jsonl")
    number = control.submit(server.folder / "app")
    try:
        reason = follow(control, number, log, say)
    except KeyboardInterrupt:
        control.stop(number)
        raise
    if not Run(config, config.folder).finished:
        raise TrainingError(reason or f"Flower's run {number} ended without a reason: `flwr log {number}` may tell")
    return run


def follow(control: Control, number: int, log: "Tail", say: Say) -> str:
    """Say what the run's log says until the run ends; why it stopped, if it did.

    Raises:
        FedgalaError: the server has not answered for a while.
    """
    reason, asked, answered, ended, pause = "", time.monotonic(), time.monotonic(), False, ASK
    while True:
        for event in log.new():
            reason = str(event.get("reason", reason))
            pause = ENDING if event["event"] in ("finished", "stopped") else pause
            if line := told(event):
                say(line)
        if ended:
            return reason
        if time.monotonic() - asked > pause:
            asked = time.monotonic()
            try:
                ended = str(control.run(number).get("status", "")).startswith("finished")
                answered = time.monotonic()
            except FedgalaError as error:
                if time.monotonic() - answered > SILENT:
                    raise FedgalaError(f"{error}; once the server is back, the same command goes on") from error
        time.sleep(POLL)


class Tail:
    """What is added to a log from now on."""

    def __init__(self, path: Path):
        self.path = path
        self._place = path.stat().st_size if path.exists() else 0

    def new(self) -> Iterator[dict[str, Any]]:
        """The whole lines since the last time."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self._place)
            lines = file.read().split(b"\n")[:-1]
        self._place += sum(len(line) + 1 for line in lines)
        yield from (json.loads(line) for line in lines)


def told(event: dict[str, Any]) -> str:
    """A line for the operator; empty where there is nothing to say."""
    kind = event["event"]
    if kind == "round":
        parts = [f"round {event['round']}", f"loss {event['loss']:.3f}"]
        parts += [f"in conflict {event['conflict']:.0%}"] if "conflict" in event else []
        parts += [f"epsilon {event['privacy']['epsilon']:.3g}"] if "privacy" in event else []
        parts += [f"failed {name} ({why})" for name, why in event.get("failed", {}).items()]
        sent, received = (sum(event[key].values()) / 1e6 for key in ("sent", "received"))
        return "  ".join([*parts, f"{sent:.1f} MB sent, {received:.1f} MB received", f"{event['seconds']:.1f} s"])
    return str(event.get("text", "")) if kind == "note" else ""


def status(server: Server) -> dict[str, Any]:
    """Who is online, and how far each run is: the last round, what it took, who failed.

    Flower knows nodes by number; which site a node is, it has told the runs in which it took part.
    """
    nodes = Control(server, environment(server.folder / "flwr")).nodes()
    places = sorted((server.folder / "runs").glob("*/config.toml"), key=lambda place: place.stat().st_mtime)
    runs = {place.parent.name: _progress(Run(RunConfig(), place.parent)) for place in places}
    names = {node: site for it in runs.values() for site, node in it["nodes"].items()}
    found = [_site(names.get(node["node-id"], ""), node) for node in nodes]
    if all(it["site"] for it in found):  # else it may be one of the nodes that have not said yet
        absent = sorted(set(server.sites) - {it["site"] for it in found})
        found += [{"site": name, "node": "", "status": "never seen", "since": ""} for name in absent]
    found.sort(key=lambda it: it["site"])
    return {"server": server.address, "registered": list(server.sites), "sites": found, "runs": runs}


def _site(name: str, node: dict[str, Any]) -> dict[str, str]:
    status = str(node["status"])
    since = node.get("online-at" if status == "online" else "offline-at", "")
    return {"site": name, "node": str(node["node-id"]), "status": status, "since": str(since)}


def _progress(run: Run) -> dict[str, Any]:
    rounds = run.records.read("round")
    last = rounds[-1] if rounds else {}
    seen: dict[str, int] = {}
    nodes: dict[str, str] = {}
    for record in rounds:
        seen |= dict.fromkeys(record["clients"], record["round"])
        nodes |= record.get("nodes", {})
    kept = ("seconds", "loss", "privacy", "sent", "received", "site_seconds", "failed")
    known = {"finished": run.finished, "round": last.get("round", 0), "last_seen": seen, "nodes": nodes}
    return known | {key: last[key] for key in kept if key in last}
