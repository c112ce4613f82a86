"""What a round costs across machines: seconds and bytes by model size; cold clients, warm sites, reference sent, bf16.

    python benchmarks/deploy.py                          all models; a server and two sites on this machine, over TLS
    python benchmarks/deploy.py --json FILE --page PAGE  keep the numbers, and show them on a page
    python benchmarks/deploy.py --json FILE --page PAGE --read           measure nothing, show those that were kept

A round is one step of four views, so that what is measured is the way there and back: starting a client, torch, the
model, sending and checking arrays. Seconds are from question to answer, the median over sites and rounds from the
second on; Flower asks for answers every few seconds, so less than that is not seen. The reference is sent in the first
round after the server's process was stopped, when nothing is known of what sites hold.
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
from importlib.metadata import version
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
ROUNDS = 5
STOPPED = 3  # rounds after which the server's process is stopped once
BEGIN, END = "<!-- cost: computed -->", "<!-- cost: end -->"
HEAD = ("model", "", "MB to a site", "MB back", "seconds", "least to most", "ratio to warm")


def measure(model: str, worker: bool, transport: str, place: Path, pictures: Path) -> list[Record]:
    """The records of a run of `ROUNDS` rounds in a fresh deployment; one with workers is stopped on the way."""
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
        stopper = threading.Thread(target=stop_after if worker else int, args=(control, run) if worker else ())
        stopper.start()
        settings = DeployConfig(min_sites=len(SITES), deadline=300, transport=transport)
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


def found_in(model: str, cold: list[Record], warm: list[Record], half: list[Record]) -> list[Record]:
    """What is kept: for each way of running a round, bytes and all seconds."""
    first = sum(warm[0]["sent"].values())
    whole = [record for record in warm[1:] if sum(record["sent"].values()) > 1.5 * first]
    ways = {
        "cold client": cold[1:],
        "warm site": [record for record in warm[1:] if record not in whole],
        "warm, reference sent": whole,
        "warm, bfloat16": [r for r in half[1:] if sum(r["sent"].values()) == sum(half[0]["sent"].values())],
    }
    return [
        {
            "model": model,
            "way": way,
            **{key: max(max(record[key].values()) for record in records) for key in ("sent", "received")},
            "seconds": [value for record in records for value in record["site_seconds"].values()],
        }
        for way, records in ways.items()
    ]


def rows_of(found: Sequence[Record]) -> list[list[str]]:
    """A row for each way of running a round, with its ratio to a warm site of the same model."""
    base = {it["model"]: statistics.median(it["seconds"]) for it in found if it["way"] == "warm site"}
    return [
        [
            it["model"],
            it["way"],
            *(f"{it[key] / 1e6:.1f}" for key in ("sent", "received")),
            f"{(middle := statistics.median(it['seconds'])):.1f}",
            f"{min(it['seconds']):.1f} to {max(it['seconds']):.1f}",
            f"{middle / base[it['model']]:.2f}",
        ]
        for it in found
    ]


def page_table(kept: Record) -> str:
    """The table as the page on deployment shows it."""
    machine = kept["machine"]
    lines = [f"| {' | '.join(cells)} |" for cells in (HEAD, ["---"] * len(HEAD), *rows_of(kept["found"]))]
    return "\n".join([*lines, "", f"*{len(SITES)} sites and the server on one machine: {machine}.*"])


def put_into(page: Path, text: str) -> None:
    """Replace what is between the marks of `page`."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def measure_all(models: Sequence[str]) -> Record:
    """Everything, and the machine that it was measured on."""
    found: list[Record] = []
    with tempfile.TemporaryDirectory() as root:
        pictures, _ = write_pictures(Path(root, "pictures"))
        for model in models:
            cold, warm, half = (
                measure(model, worker, transport, Path(root, f"{model}-{worker}-{transport}"), pictures)
                for worker, transport in ((False, "float32"), (True, "float32"), (True, "bfloat16"))
            )
            found += found_in(model, cold, warm, half)
            print(f"{model}: measured", flush=True)
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "flwr"))
    return {"machine": f"{platform.machine()}, {os.cpu_count()} cores, no GPU, {versions}", "found": found}


def main() -> None:
    """Measure, print, keep and show if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--json", type=Path, help="keep the numbers here")
    parser.add_argument("--page", type=Path, help="a page to put the table into")
    parser.add_argument("--read", action="store_true", help="measure nothing: take what --json holds")
    arguments = parser.parse_args()
    kept = json.loads(arguments.json.read_text()) if arguments.read else measure_all(arguments.models)
    print(f"{kept['machine']}\n{table(HEAD, rows_of(kept['found']))}")
    if arguments.json and not arguments.read:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(kept, indent=1) + "\n")
    if arguments.page:
        put_into(arguments.page, page_table(kept))


if __name__ == "__main__":
    main()
