"""What a round costs across machines: seconds and bytes by model size, cold clients beside warm sites, reference sent.

    python benchmarks/deploy.py                  3, 45 and 87 MB, a server and two sites on this machine, over TLS
    python benchmarks/deploy.py --models small

A round is one step of four views, so that what is measured is the way there and back: starting a client, torch, the
model, sending and checking arrays. Seconds are from question to answer, the median over sites and rounds from the
second on. The reference is sent in the first round after the server's process was stopped, when nothing is known of
what sites hold.
"""

import argparse
import json
import os
import platform
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedgala.config import RunConfig
from fedgala.engines.flower.control import Control, environment
from fedgala.engines.flower.demo import write_pictures
from fedgala.engines.flower.deployment import create, read_site
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
from fedgala.errors import FedgalaError
from fedgala.records import Record
from fedgala.report.tables import table
from fedgala.run import Run

MODELS: dict[str, dict[str, Any]] = {
    "small": {"encoder": "small", "projector_hidden": 64, "projector_output": 64},
    "resnet18": {"encoder": "resnet18", "projector_hidden": 64, "projector_output": 64},
    "paper": {"encoder": "resnet18"},
}
SITES = ("cartoon", "photo")
ROUNDS = 6
STOPPED = 3  # rounds after which the server's process is stopped once


def measure(model: str, worker: bool, place: Path, pictures: Path) -> list[Record]:
    """The records of a run of `ROUNDS` rounds in a fresh deployment."""
    server = create(place, SITES, "127.0.0.1", free_port(), secure=True, insist=False)
    control = Control(server, environment(server.folder / "flwr"))
    config = RunConfig.from_dict(
        {
            "model": MODELS[model],
            "data": {"size": 32},
            "federation": {"rounds": ROUNDS, "epochs": 0.01, "batch_size": 2},
            "engine": {"threads": 1, "device": "cpu"},
        }
    )
    with ExitStack() as held:
        held.callback(stop, start(superlink_command(server), server.folder / "flwr", server.folder / "log"))
        wait_for(server)
        control.register_all()
        for name in SITES:
            site = read_site(place / "sites" / name)
            command = supernode_command(site, pictures / name / name)
            with (site.folder / "node.toml").open("a") as told:
                told.write(f"worker = {json.dumps(worker)}\n")
            held.callback(stop, start(command, site.folder / "flwr", site.folder / "log"))
            held.callback(stop_worker, site)
        run = Run(config, replace(config, out=str(server.folder / config.out)).folder)
        stopper = threading.Thread(target=stop_after, args=(control, run))
        stopper.start()
        settings = DeployConfig(min_sites=len(SITES), deadline=300)
        try:
            operate(server, config, settings, False, lambda line: None)
        except FedgalaError:  # it was stopped, and goes on
            operate(server, config, settings, False, lambda line: None)
        stopper.join()
        return run.records.read("round")


def stop_after(control: Control, run: Run) -> None:
    """End Flower's run once `STOPPED` rounds are recorded."""
    while len(run.records.read("round")) < STOPPED:
        time.sleep(0.2)
    (number,) = (int(it["run-id"]) for it in control.ask("list")["runs"])
    control.stop(number)


def seconds(records: Sequence[Record]) -> list[float]:
    """Of all sites and rounds, from question to answer."""
    return [value for record in records for value in record["site_seconds"].values()]


def rows_of(model: str, found: dict[bool, list[Record]]) -> list[list[str]]:
    """Three rows: cold, warm, warm with the reference."""

    def plain(records: list[Record]) -> list[Record]:
        least = min(sum(record["sent"].values()) for record in records)
        return [record for record in records[1:] if sum(record["sent"].values()) == least]

    warm = found[True]
    heavy = [record for record in warm[1:] if sum(record["sent"].values()) > 1.5 * sum(warm[0]["sent"].values())]
    kinds = {"cold client": plain(found[False]), "warm site": plain(warm), "warm, reference sent": heavy}
    base = statistics.median(seconds(kinds["warm site"]))
    rows = []
    for kind, records in kinds.items():
        values = seconds(records)
        sent, received = (sum(records[0][key].values()) / len(SITES) / 1e6 for key in ("sent", "received"))
        middle = statistics.median(values)
        spread = f"{min(values):.1f} to {max(values):.1f}"
        rows.append([model, kind, f"{sent:.1f}", f"{received:.1f}", f"{middle:.1f}", spread, f"{middle / base:.2f}"])
    return rows


def main() -> None:
    """Measure, print, and save if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--json", type=Path, help="also save the numbers here")
    arguments = parser.parse_args()
    rows: list[list[str]] = []
    with tempfile.TemporaryDirectory() as root:
        pictures, _ = write_pictures(Path(root, "pictures"))
        for model in arguments.models:
            found = {w: measure(model, w, Path(root, f"{model}-{w}"), pictures) for w in (False, True)}
            rows += rows_of(model, found)
            print(f"{model}: measured", flush=True)
    head = ["model", "", "MB to a site", "MB back", "seconds", "spread", "ratio to warm"]
    print(f"{platform.machine()}, {os.cpu_count()} cores, {len(SITES)} sites on this machine\n{table(head, rows)}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"head": head, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
