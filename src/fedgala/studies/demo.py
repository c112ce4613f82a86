"""The demonstration: leave one domain out, FedGaLA beside FedAvg with SimCLR and an untrained encoder."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from fedgala.config import DataConfig, RunConfig, merge
from fedgala.data.source import open_dataset
from fedgala.observe import Observer
from fedgala.presets import CPU, PRESETS
from fedgala.report.sheet import contact_sheet
from fedgala.report.tables import cell, table
from fedgala.run import Run
from fedgala.studies.schedule import carry_out

METHODS: dict[str, dict[str, Any]] = {"FedGaLA": {}, "FedAvg + SimCLR": PRESETS["fedsimclr"]}
RATIO = 0.1  # of the unseen domain's labels, for the linear probe


def demo_configs(out: Path, targets: Sequence[str], seeds: Sequence[int], over: Mapping[str, Any]) -> list[RunConfig]:
    """A run for every method, target and seed."""
    configs = []
    for seed in seeds:
        for target in targets:
            for name, method in METHODS.items():
                own = {"name": f"{name.split()[0].lower()}-{target}-{seed}", "out": str(out), "seed": seed}
                probe = {"ratios": [RATIO]}
                nested: dict[str, Any] = {**own, "data": {"target": target}, "probe": probe, "engine": {"threads": 1}}
                configs.append(RunConfig.from_dict(merge(merge(merge(CPU, method), nested), over)))
    return configs


@dataclass(frozen=True)
class Demonstration:
    """What the demonstration shows, and where it is."""

    table: str
    margins: str
    sheet: Path
    plots: Path
    encoder: Path


def run_demo(
    out: Path, seeds: Sequence[int], over: Mapping[str, Any], jobs: int, say: Callable[[str], None]
) -> Demonstration:
    """Carry out all runs of the demonstration that are missing, and put the results together."""
    say(f"making the pictures of shapes; runs go to {out}")
    dataset = open_dataset(DataConfig(), Observer())
    contact_sheet(dataset, out / "shapes.png")
    configs = demo_configs(out, dataset.names, seeds, over)
    say(f"{len(configs)} runs, {jobs} at a time")
    runs = carry_out(configs, jobs, _reporter(say))
    last = runs[-2]
    return Demonstration(
        demo_table(runs, dataset.names),
        _margins(runs),
        out / "shapes.png",
        last.folder / "plots",
        last.encoder_path,
    )


def _reporter(say: Callable[[str], None]) -> Callable[[int, int], None]:
    began, said = time.monotonic(), [0.0]

    def progress(done: int, total: int) -> None:
        now = time.monotonic()
        if done and (now - said[0] > 10 or done == total):
            said[0] = now
            left = (now - began) * (total - done) / done
            say(f"{done} of {total} rounds, about {left:.0f} s left")

    return progress


def _margins(runs: Sequence[Run]) -> str:
    lines = []
    for name in METHODS:
        mine = [run for run in runs if run.folder.name.startswith(name.split()[0].lower())]
        gains = [
            after - before
            for run in mine
            if (before := accuracy(run, 0)) is not None
            and (after := accuracy(run, run.config.federation.rounds)) is not None
        ]
        least = f"least {100 * min(gains):+.1f}" if gains else ""
        lines.append(f"{name} minus untrained: {cell(gains)} points over {len(gains)} runs, {least}")
    return "\n".join(lines)


def accuracy(run: Run, round: int) -> float | None:
    """The share of right answers of the linear probe on the encoder after `round`; None where it was not measured."""
    for record in run.records.read("evaluation"):
        if record["round"] == round and "probe" in record:
            return fmean(record["probe"]["encoder"][f"{RATIO:g}"])
    return None


def demo_table(runs: Sequence[Run], targets: Sequence[str]) -> str:
    """Accuracy on each unseen domain: mean and spread over the seeds."""
    rows = []
    for name, round in [(method, None) for method in METHODS] + [("untrained encoder", 0)]:
        method = name if round is None else "FedGaLA"
        mine = [run for run in runs if run.folder.name.startswith(method.split()[0].lower())]
        by_target = {
            target: [
                value
                for run in mine
                if run.config.data.target == target
                and (value := accuracy(run, run.config.federation.rounds if round is None else round)) is not None
            ]
            for target in targets
        }
        over_targets = [fmean(values) for values in zip(*by_target.values(), strict=False)]
        rows.append([name, *(cell(values) for values in by_target.values()), cell(over_targets)])
    return table(["accuracy, %", *targets, "average"], rows)
