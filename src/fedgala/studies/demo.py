"""The demonstration: leave one domain out of the embedded data set; FedGaLA beside FedAvg with SimCLR.

Small and honest: the paper's rule of discarding gradients has a row of its own beside the default, which projects them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedgala.config import DataConfig
from fedgala.data.source import open_dataset
from fedgala.observe import Observer
from fedgala.presets import CPU
from fedgala.report.sheet import contact_sheet
from fedgala.run import Run
from fedgala.studies.carry import Means, plan_named, run_study, show, study_folder
from fedgala.studies.exhibit import FORMATS
from fedgala.studies.outcome import read_study
from fedgala.studies.plan import Ask, locate
from fedgala.studies.schedule import Summary
from fedgala.studies.watch import Watcher

ROUNDS = 4
NAME = "demo"


@dataclass(frozen=True)
class Demonstration:
    """What the demonstration shows, and where it is."""

    table: str
    pictures: Path
    run: Run  # one of them, to look at
    summary: Summary


def demo_ask(out: Path, seeds: Sequence[int], rounds: int) -> Ask:
    """The demonstration as a study: few rounds on two cores, one share of labels."""
    flags = {"federation": {"rounds": rounds}, "probe": {"ratios": [0.1]}}
    return Ask(locate("shapes"), CPU, flags, seeds, out=str(out))


def run_demo(out: Path, seeds: Sequence[int], rounds: int, jobs: int | None, watcher: Watcher) -> Demonstration:
    """Carry out all runs of the demonstration that are missing, and put the results together."""
    watcher.line("drawing the pictures of shapes")
    contact_sheet(open_dataset(DataConfig(), Observer()), out / "shapes.png")
    ask = demo_ask(out, seeds, rounds)
    planned = plan_named(NAME, ask)
    watcher.line(f"{len(planned)} runs of {rounds} rounds, in {out}")
    summary = run_study(NAME, ask, planned, Means(jobs), watcher)
    table = FORMATS["text"][1](show(read_study(study_folder(NAME, ask))))
    config = planned[0].config
    return Demonstration(table, out / "shapes.png", Run(config, config.folder), summary)
