"""Watching a study: how many runs are done, what is being worked on, and when it will be over.

Work is counted in local epochs, so that runs of different lengths can be added up; what is left is expected to go at
the rate of what was done since the start.
"""

import time
from collections.abc import Callable
from typing import Any

from fedgala.data.listing import counted
from fedgala.studies.work import Task

QUIET = 20.0  # seconds between two lines where nobody sees a bar
Say = Callable[[str], None]


class Watcher:
    """Keeps count, and says a line when a run ends and every now and then."""

    def __init__(self, say: Say):
        self.say, self.began, self.said = say, time.monotonic(), time.monotonic()
        self.rounds: dict[str, float] = {}  # done, by run
        self.tasks: dict[str, Task] = {}
        self.running: dict[str, str] = {}  # and what is to be said about each
        self.away: set[str] = set()  # in other hands
        self.ended: dict[str, str] = {}
        self.before = 0.0  # work that was done before the start

    def waiting(self, task: Task, rounds: int) -> None:
        """A run is to be done, of which an earlier process did some rounds."""
        self.tasks[task.name], self.rounds[task.name] = task, rounds
        self.before += rounds * task.config.federation.epochs

    def begun(self, task: Task) -> None:
        """A worker has the run."""
        self.away.discard(task.name)
        self.running[task.name] = ""

    def progress(self, task: Task, rounds: float, text: str) -> None:
        """A run has got so far."""
        self.rounds[task.name], self.running[task.name] = rounds, text

    def elsewhere(self, task: Task) -> None:
        """Another process has the run."""
        self.away.add(task.name)
        self.running.pop(task.name, None)

    def finished(self, task: Task, kind: str, text: str) -> None:
        """A run is done, has failed, or was stopped."""
        name = task.name
        known = name in self.tasks
        self.running.pop(name, None)
        self.away.discard(name)
        self.tasks[name], self.ended[name] = task, kind
        if kind == "done":
            self.rounds[name] = task.config.federation.rounds
            if not known:
                self.before += task.config.federation.rounds * task.config.federation.epochs
        if kind == "failed":
            self.line(f"FAILED {_title(task)}, in {name}: {text}")
        elif known and kind == "done":
            self.line(f"{_title(task)}: done; {self.status()}")

    def status(self) -> str:
        """``3 of 32 runs done, 2 at work, about 4 min left``."""
        done = sum(kind == "done" for kind in self.ended.values())
        text = f"{done} of {counted(len(self.tasks), 'run')} done, {len(self.running)} at work"
        text += f", {len(self.away)} in other hands" if self.away else ""
        left = self.left()
        return text if left is None else f"{text}, about {spoken(left)} left"

    def left(self) -> float | None:
        """Seconds until all is done, at the rate so far; None as long as there is none."""
        whole, done = self.work()
        speed = (done - self.before) / max(1e-9, time.monotonic() - self.began)
        return (whole - done) / speed if speed > 0 and time.monotonic() - self.began > 5 else None

    def work(self) -> tuple[float, float]:
        """Local epochs in all, and those done."""
        whole = done = 0.0
        for name, task in self.tasks.items():
            federation = task.config.federation
            failed = self.ended.get(name) == "failed"  # its work is not waited for
            rounds = self.rounds.get(name, 0.0)
            whole += federation.epochs * (rounds if failed else federation.rounds)
            done += federation.epochs * rounds
        return whole, done

    def line(self, text: str) -> None:
        """Something that stays."""
        self.said = time.monotonic()
        self.say(text)

    def tick(self) -> None:
        """Called a few times a second."""
        if time.monotonic() - self.said > QUIET:
            self.line(self.status())

    def close(self) -> None:
        """Nothing more comes."""


class LiveWatcher(Watcher):
    """A bar for all runs and a line for each that is worked on, on a terminal."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self.console = Console(stderr=True, highlight=False)
        super().__init__(self.console.print)
        self.live = Live(console=self.console, transient=True, auto_refresh=False)
        self.live.start()

    def tick(self) -> None:
        """Draw it anew."""
        self.live.update(self._drawn(), refresh=True)

    def close(self) -> None:
        """Take it away."""
        self.live.stop()

    def _drawn(self) -> Any:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.text import Text

        whole, done = self.work()
        lines = [
            f"  {_title(task)}: round {self.rounds[task.name]:.1f} of {task.config.federation.rounds}  {text}"
            for task, text in ((self.tasks[name], text) for name, text in self.running.items())
        ]
        return Group(ProgressBar(max(whole, 1e-9), done, width=60), Text("\n".join([self.status(), *lines])))


def spoken(seconds: float) -> str:
    """``40 s``, ``12 min``, ``3 h 5 min``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def _title(task: Task) -> str:
    return task.title or task.name
