"""The runs of a folder: those that a study's list names, or all that lie in it. Their records are enough."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fedgala.config import RunConfig
from fedgala.errors import ConfigError
from fedgala.records import Record, Records
from fedgala.report.configuration import settings, shown
from fedgala.run import Run
from fedgala.toml import read_toml

MANIFEST = "study.json"  # of a study: which runs are its own, and what stands for each
APART = ("seed", "data.target", "name", "out", "log")  # settings that make no method of a run


@dataclass(frozen=True)
class Member:
    """A run among others."""

    label: str  # what it varies
    target: str
    seed: int
    rounds: int  # that it was asked for
    folder: Path

    @cached_property
    def records(self) -> Sequence[Record]:
        """All that was recorded."""
        return Records(self.folder / "records.jsonl").read()

    def of(self, kind: str) -> list[Record]:
        """The records of one kind."""
        return [record for record in self.records if record["kind"] == kind]

    @property
    def finished(self) -> bool:
        """Whether all its rounds are recorded."""
        return any(record["round"] == self.rounds for record in self.of("round"))


def find_members(folder: Path) -> list[Member]:
    """The runs that have begun.

    Raises:
        ConfigError: the list of a study is damaged, or a configuration can't be read.
    """
    found = _listed(folder) if (folder / MANIFEST).exists() else _inside(folder)
    return [member for member in found if (member.folder / "records.jsonl").exists()]


def open_run(folder: Path) -> Run:
    """The run in a folder."""
    return Run(RunConfig.from_dict(read_toml(folder / "config.toml")), folder)


def _listed(folder: Path) -> list[Member]:
    place = folder.parent / "runs"
    try:
        about = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return [
            Member(str(it["label"]), str(it["target"]), int(it["seed"]), int(it["rounds"]), place / str(it["run"]))
            for it in about["runs"]
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{folder / MANIFEST} is not the list of a study's runs ({error!r})") from error


def _inside(folder: Path) -> list[Member]:
    runs = [open_run(path.parent) for path in sorted(folder.glob("*/config.toml"))]
    return [
        Member(label, run.config.data.target or "none", run.config.seed, run.config.federation.rounds, run.folder)
        for label, run in zip(_labels(runs), runs, strict=True)
    ]


def _labels(runs: Sequence[Run]) -> list[str]:
    """Of each run the settings in which the runs differ, but for target and seed."""
    found = [{name: value for name, (value, _, _) in settings(run.config).items()} for run in runs]
    varied = [name for name in (found[0] if found else ()) if len({str(each[name]) for each in found}) > 1]
    named = [name for name in varied if name not in APART]
    return [", ".join(_worded(name, each[name]) for name in named) or "all runs" for each in found]


def _worded(name: str, value: Any) -> str:
    """``discard`` says what it is; ``0.5`` does not, and becomes ``threshold 0.5``."""
    return value if isinstance(value, str) else f"{name.rpartition('.')[2]} {shown(value) or 'none'}"
