"""The runs of a folder: those that a study's list names, or all that lie in it. Their records are enough."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedgala.config import RunConfig
from fedgala.report.configuration import settings, shown
from fedgala.run import Run
from fedgala.studies.outcome import MANIFEST, Entry, read_study
from fedgala.toml import read_toml

APART = ("seed", "data.target", "name", "out", "log")  # settings that make no method of a run


def find_members(folder: Path) -> list[Entry]:
    """The runs that have begun.

    Raises:
        ConfigError: the list of a study is damaged, or a configuration can't be read.
    """
    found = read_study(folder).entries if (folder / MANIFEST).exists() else _inside(folder)
    return [member for member in found if (member.folder / "records.jsonl").exists()]


def open_run(folder: Path) -> Run:
    """The run in a folder."""
    return Run(RunConfig.from_dict(read_toml(folder / "config.toml")), folder)


def _inside(folder: Path) -> list[Entry]:
    runs = [open_run(path.parent) for path in sorted(folder.glob("*/config.toml"))]
    return [
        Entry(label, {}, run.config.data.target or "none", run.config.seed, run.config.federation.rounds, run.folder)
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
