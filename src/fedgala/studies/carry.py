"""A study from arguments to exhibit: plan it, write down what it is, carry out what is missing, show what there is."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedgala.config import DataConfig
from fedgala.data.catalog import EMBEDDED
from fedgala.data.source import open_dataset
from fedgala.errors import ConfigError
from fedgala.observe import Observer
from fedgala.settings import near
from fedgala.studies.catalogue import STUDIES
from fedgala.studies.exhibit import Exhibit, save_exhibit
from fedgala.studies.outcome import Outcome, read_study, write_manifest
from fedgala.studies.plan import Ask, Planned
from fedgala.studies.schedule import NEVER, Summary, carry_out, places
from fedgala.studies.study import Study, plan
from fedgala.studies.watch import Watcher
from fedgala.studies.work import Task


@dataclass(frozen=True)
class Means:
    """With what a study is carried out."""

    jobs: int | None = None  # runs at a time; one for each GPU, or CPU core, if not said
    device: str = "auto"
    budget: float | None = None  # seconds


def study_named(name: str) -> Study:
    """The study of this name.

    Raises:
        ConfigError: there is none.
    """
    if name not in STUDIES:
        raise ConfigError(f"there is no study {name!r}: {near(name, STUDIES)}")
    return STUDIES[name]


def study_folder(name: str, ask: Ask) -> Path:
    """Where a study's list of runs, tables and picture are."""
    return Path(ask.out) / f"{name}-{ask.place.name}"


def run_study(name: str, ask: Ask, planned: Sequence[Planned], means: Means, watcher: Watcher) -> Summary:
    """Carry out what is missing of a study, and write its tables."""
    deadline = NEVER if means.budget is None else time.monotonic() + means.budget
    folder = study_folder(name, ask)
    write_manifest(folder, name, ask.place, planned)
    if ask.place.path not in EMBEDDED:
        open_dataset(
            DataConfig.from_dict(ask.base.data.to_dict() | {"path": ask.place.path}), Observer()
        )  # decode once
    measures = STUDIES[name].measures
    tasks = [Task(it.config, measures, f"{it.variant.label}, {it.target}, seed {it.seed}") for it in planned]
    devices, threads = places(means.jobs, means.device)
    summary = carry_out(tasks, devices, threads, watcher, deadline)
    save_exhibit(show(read_study(folder)), folder)
    return summary


def show(outcome: Outcome) -> Exhibit:
    """The tables and the picture of a study, as far as its runs go."""
    return study_named(outcome.study).show(outcome)


def plan_named(name: str, ask: Ask) -> list[Planned]:
    """The runs of a study by its name."""
    return plan(study_named(name), ask)
