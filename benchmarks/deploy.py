"""What a round costs across machines: seconds and bytes by model size; cold clients, warm sites, reference sent, bf16.

    python benchmarks/deploy.py                          all models; a server and two sites on this machine, over TLS
    python benchmarks/deploy.py --json FILE --page PAGE  keep the numbers, and show them on a page
    python benchmarks/deploy.py --json FILE --page PAGE --read           measure nothing, show those that were kept

A round is one step of four views, so that what is measured is the way there and back: starting a client, torch, the
model, sending and checking arrays. Two sites take part in the same rounds, one with its worker and one without, so that
a busy machine does the same to both. Seconds are from question to answer, from the second round on; Flower asks for
answers every few seconds, so less than that is not seen. The reference is sent in the first round after the server's
process was stopped, when nothing is known of what sites hold.
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
COLD, WARM = SITES = ("cartoon", "photo")
ROUNDS = 4
STOPPED = 2  # rounds after which the server's process is stopped once
BEGIN, END = "<!-- cost: computed -->", "<!-- cost: end -->"
HEAD = ("model", "", "MB to a site", "MB back", "seconds", "ratio to warm")


def measure(model: str, rounds: int, transport: str, place: Path, pictures: Path) -> list[Record]:
    """The records of a run in a fresh deployment; one that is long enough is stopped on the way."""
    server = create(place, SITES, "127.0.0.1", free_port(), secure=True, insist=False)
    control = Control(server, environment(server.folder / "flwr"))
    config = RunConfig.from_dict(
        {
            "name": model,
            "model": MODELS[model],
            "data": {"size": 32},
            "federation": {"rounds": rounds, "epochs": 0.01, "batch_size": 2},
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
                told.write(f"worker = {json.dumps(name == WARM)}\n")
            held.callback(stop, start(command, site.folder / "flwr", site.folder / "log"))
            held.callback(stop_worker, site)
        run = Run(config, replace(config, out=str(server.folder / config.out)).folder)
        if rounds > STOPPED:
            threading.Thread(target=stop_after, args=(control, run), daemon=True).start()
        settings = DeployConfig(min_sites=len(SITES), deadline=300, transport=transport)
        try:
            operate(server, config, settings, False, lambda line: None)
        except FedgalaError:  # it was stopped, and goes on
            operate(server, config, settings, False, lambda line: None)
        return run.records.read("round")


def stop_after(control: Control, run: Run) -> None:
    """End Flower's run once `STOPPED` rounds are recorded."""
    while len(run.records.read("round")) < STOPPED:
        time.sleep(0.2)
    (number,) = (int(it["run-id"]) for it in control.ask("list")["runs"])
    control.stop(number)


def found_in(model: str, records: Sequence[Record], half: Sequence[Record]) -> list[Record]:
    """What is kept: for each way of running a round, bytes and all seconds."""
    least = min(records[0]["sent"].values())
    whole = [record for record in records[1:] if record["sent"][WARM] > 1.5 * least]
    plain = [record for record in records[1:] if record not in whole]
    ways = {
        "cold client": (COLD, plain),
        "warm site": (WARM, plain),
        "warm, reference sent": (WARM, whole),
        "warm, bfloat16": (WARM, half[1:]),
    }
    return [
        {
            "model": model,
            "way": way,
            **{key: max(record[key][site] for record in some) for key in ("sent", "received")},
            "seconds": [record["site_seconds"][site] for record in some],
        }
        for way, (site, some) in ways.items()
    ]


def rows_of(found: Sequence[Record]) -> list[list[str]]:
    """A row for each way of running a round, with its ratio to a warm site of the same model."""
    base = {it["model"]: statistics.fmean(it["seconds"]) for it in found if it["way"] == "warm site"}
    return [
        [
            it["model"],
            it["way"],
            *(f"{it[key] / 1e6:.1f}" for key in ("sent", "received")),
            ", ".join(f"{value:.1f}" for value in it["seconds"]),
            f"{statistics.fmean(it['seconds']) / base[it['model']]:.2f}",
        ]
        for it in found
    ]


def page_table(kept: Record) -> str:
    """The table as the page on deployment shows it."""
    machine = kept["machine"]
    lines = [f"| {' | '.join(cells)} |" for cells in (HEAD, ["---"] * len(HEAD), *rows_of(kept["found"]))]
    return "\n".join(
        [*lines, "", f"*{len(SITES)} sites and the server on one machine: {machine}; a load of {kept['load']:.0f}.*"]
    )


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
            whole, half = (
                measure(model, rounds, transport, Path(root, f"{model}-{transport}"), pictures)
                for rounds, transport in ((ROUNDS, "float32"), (STOPPED, "bfloat16"))
            )
            found += found_in(model, whole, half)
            print(f"{model}: measured", flush=True)
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "flwr"))
    machine = f"{platform.machine()}, {os.cpu_count()} cores, no GPU, {versions}"
    return {"machine": machine, "load": os.getloadavg()[2], "found": found}


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
