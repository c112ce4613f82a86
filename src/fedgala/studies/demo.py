"""The demonstration: leave one domain out, FedGaLA beside FedAvg with SimCLR and an untrained encoder.

Small and honest: the paper's rule of discarding gradients has a row of its own beside the default, which projects them.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from fedgala import methods
from fedgala.config import DataConfig, RunConfig, merge
from fedgala.data.source import open_dataset
from fedgala.observe import Observer
from fedgala.presets import CPU
from fedgala.report.sheet import contact_sheet
from fedgala.report.tables import cell, table
from fedgala.run import Run
from fedgala.studies.schedule import carry_out

METHODS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "FedGaLA": ("fedgala", {}),
    "FedGaLA, discarding": ("discard", {"local": {"rule": "discard"}}),
    "FedAvg + SimCLR": ("fedsimclr", methods.METHODS["fedsimclr"].settings),
}
ROUNDS = 4
RATIO = 0.1  # of the unseen domain's labels, for the linear probe

Key = tuple[str, str, int]  # method, target, seed
Say = Callable[[str], None]


@dataclass(frozen=True)
class Demonstration:
    """What the demonstration shows, and where it is."""

    table: str
    margins: str
    pictures: Path
    run: Run  # one of them, to look at


def demo_configs(out: Path, targets: Sequence[str], seeds: Sequence[int], rounds: int) -> dict[Key, RunConfig]:
    """A run for every method, target and seed."""
    configs = {}
    for seed in seeds:
        for target in targets:
            for name, (short, method) in METHODS.items():
                own: dict[str, Any] = {"name": f"{short}-{target}-{seed}", "out": str(out), "seed": seed}
                own |= {"data": {"target": target}, "probe": {"ratios": [RATIO]}, "engine": {"threads": 1}}
                own |= {"federation": {"rounds": rounds}}
                configs[name, target, seed] = RunConfig.from_dict(merge(merge(CPU, method), own))
    return configs


def run_demo(out: Path, seeds: Sequence[int], rounds: int, jobs: int, say: Say) -> Demonstration:
    """Carry out all runs of the demonstration that are missing, and put the results together."""
    say("drawing the pictures of shapes")
    dataset = open_dataset(DataConfig(), Observer())
    contact_sheet(dataset, out / "shapes.png")
    configs = demo_configs(out, dataset.names, seeds, rounds)
    say(f"{len(configs)} runs of {rounds} rounds, {jobs} at a time, in {out}")
    done = carry_out(list(configs.values()), jobs, _reporter(say))
    runs = dict(zip(configs, done, strict=True))
    return Demonstration(demo_table(runs), _margins(runs), out / "shapes.png", done[0])


def demo_table(runs: Mapping[Key, Run]) -> str:
    """Accuracy on each unseen domain, mean and spread over the seeds; then the average over the domains."""
    targets, seeds = sorted({key[1] for key in runs}), sorted({key[2] for key in runs})
    rows = []
    for name in (*METHODS, "untrained encoder"):
        method, last = (name, True) if name in METHODS else (next(iter(METHODS)), False)
        values = {(target, seed): accuracy(runs[method, target, seed], last) for target in targets for seed in seeds}
        cells = [cell([values[target, seed] for seed in seeds]) for target in targets]
        average = cell([fmean(values[target, seed] for target in targets) for seed in seeds])
        rows.append([name, *cells, average])
    return table(["accuracy, %", *targets, "average"], rows)


def accuracy(run: Run, last: bool) -> float:
    """The share of right answers of the linear probe on the encoder, after the last round or before the first."""
    evaluations = run.records.read("evaluation")
    return fmean(evaluations[-1 if last else 0]["probe"]["encoder"][f"{RATIO:g}"])


def _margins(runs: Mapping[Key, Run]) -> str:
    lines = []
    for name in METHODS:
        gains = [accuracy(run, True) - accuracy(run, False) for key, run in runs.items() if key[0] == name]
        lines.append(
            f"{name} minus untrained: {cell(gains)} points, least {100 * min(gains):+.1f}, of {len(gains)} runs"
        )
    return "\n".join(lines)


def _reporter(say: Say) -> Callable[[int, int], None]:
    began, said = time.monotonic(), [0.0]

    def progress(done: int, total: int) -> None:
        now = time.monotonic()
        if done and now - said[0] > 10:
            said[0] = now
            say(f"{done} of {total} rounds, about {(now - began) * (total - done) / done:.0f} s left")

    return progress
