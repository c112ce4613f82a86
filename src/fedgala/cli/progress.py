"""Watching a run on a terminal (a live line) or in a log (a line per round)."""

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedgala.config import RunConfig
from fedgala.data.listing import counted
from fedgala.observe import Observer

if TYPE_CHECKING:
    from fedgala.records import Record


SILENCE = 30  # seconds after which a log hears of a long round
NAMED = 8  # clients up to which each is named


def observer(quiet: bool) -> "Plain":
    """The watcher that fits where output goes."""
    if quiet:
        return Plain(quiet=True)
    return Live() if sys.stderr.isatty() else Plain()


def say(line: str) -> None:
    """A line for the user; results go to standard output, this does not."""
    print(line, file=sys.stderr, flush=True)


def round_line(record: "Record", rounds: int) -> str:
    """``round 3/20  loss 4.123  in conflict 41%  12.3 s``."""
    parts = [f"round {record['round']}/{rounds}", f"loss {record['loss']:.3f}"]
    if "conflict" in record:
        parts.append(f"in conflict {record['conflict']:.0%}")
    if "privacy" in record:
        parts.append(f"epsilon {record['privacy']['epsilon']:.3g}")
    if record.get("rejected"):
        parts.append(f"rejected {', '.join(record['rejected'])}")
    return "  ".join([*parts, f"{record['seconds']:.1f} s"])


def evaluation_line(record: "Record") -> str:
    """``after round 3: 61.2 % with 10 % of the labels (...)``; without labels the effective rank."""
    when = f"after round {record['round']}" if record["round"] else "untrained"
    if "probe" not in record:
        monitor = record["monitor"]
        return (
            f"{when}: alignment {monitor['alignment']:.3f}  uniformity {monitor['uniformity']:.2f}  "
            f"effective rank {monitor['effective_rank']:.1f}"
        )
    shares = [
        f"{100 * sum(values) / len(values):.1f} % with {float(ratio):.0%} of the labels"
        for ratio, values in record["probe"]["encoder"].items()
    ]
    return f"{when}: {', '.join(shares)}, kNN {100 * record['knn']:.1f} %"


def memory_line(record: "Record") -> str:
    """``1.2 GB of memory at most, 3.4 GB on the GPU``."""
    words = {"process": "GB of memory", "cuda": "GB on the GPU"}
    return ", ".join(f"{size / 1e9:.1f} {words[kind]}" for kind, size in record["peak_memory"].items()) + " at most"


class Plain(Observer):
    """A line for each thing that happens."""

    def __init__(self, quiet: bool = False):
        self.quiet, self.rounds, self.steps, self.done = quiet, 0, 0, 0
        self._said = time.monotonic()

    def decoding(self, done: int, total: int) -> None:
        """A line every few seconds."""
        if done == total or self._silent_for(5):
            self.line(f"pictures read: {done} of {total}")

    def begin(self, config: RunConfig, folder: Path, steps: Mapping[str, int]) -> None:
        """What is about to happen."""
        self.rounds, self.steps = config.federation.rounds, sum(steps.values())
        clients = ", ".join(f"{name} ({counted(count, 'step')})" for name, count in steps.items())
        if len(steps) > NAMED:
            clients = f"{len(steps)} clients with {min(steps.values())} to {max(steps.values())} steps each"
        self.line(f"{folder}: {counted(self.rounds, 'round')}, each of {clients}")

    def step(self) -> None:
        """A line where a round takes long."""
        self.done += 1
        if self._silent_for(SILENCE):
            self.line(f"step {self.done} of at most {self.steps} in this round")

    def record(self, record: "Record") -> None:
        """A line for a round or an evaluation."""
        self.done = 0
        self.line(round_line(record, self.rounds) if record["kind"] == "round" else evaluation_line(record))

    def note(self, line: str) -> None:
        """A line; also when quiet, for it is something to know."""
        say(line)

    def line(self, text: str) -> None:
        """Say `text`, unless quiet."""
        self._said = time.monotonic()
        if not self.quiet:
            say(text)

    def _silent_for(self, seconds: float) -> bool:
        return time.monotonic() - self._said > seconds


class Live(Plain):
    """A progress bar with what matters now, and lines above it for what stays."""

    def __init__(self) -> None:
        super().__init__()
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        self.console = Console(stderr=True, highlight=False)
        self.bar: Any = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
        )
        self.task: Any = None
        self.total = 0

    def decoding(self, done: int, total: int) -> None:
        """The bar counts pictures."""
        self._show("reading pictures", done, total)

    def working(self, what: str) -> None:
        """The bar's text; it moves without counting."""
        self._show(what, self.done, self.total or None)

    def begin(self, config: RunConfig, folder: Path, steps: Mapping[str, int]) -> None:
        """The bar counts steps; rounds done by an earlier process are taken as done."""
        super().begin(config, folder, steps)
        self.total, self.done = config.federation.rounds * sum(steps.values()), 0
        self._show("training", 0, self.total)

    def step(self) -> None:
        """One step further."""
        self.done += 1
        self.bar.update(self.task, completed=self.done)

    def record(self, record: "Record") -> None:
        """The last round is the bar's text, evaluations stay above it."""
        if record["kind"] == "round":
            self.done = self.total * record["round"] // self.rounds
            self._show(round_line(record, self.rounds), self.done, self.total)
            if record["round"] == self.rounds:
                self.console.print(round_line(record, self.rounds))
        else:
            self.console.print(evaluation_line(record))

    def note(self, line: str) -> None:
        """A line above the bar."""
        self.console.print(line)

    def close(self) -> None:
        """Take the bar away."""
        self.bar.stop()

    def _show(self, text: str, done: int, total: int | None) -> None:
        if self.task is None:
            self.bar.start()
            self.task = self.bar.add_task(text)
        self.bar.update(self.task, description=text, completed=done, total=total)
