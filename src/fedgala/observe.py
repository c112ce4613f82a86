"""What a run tells whoever watches: a terminal, a plain log, a test, nobody."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fedgala.config import RunConfig

if TYPE_CHECKING:  # records lead to torch, which who only watches need not wait for
    from fedgala.records import Record


class Observer:
    """Watches a run and does nothing; watchers override what they care for."""

    def decoding(self, done: int, total: int) -> None:
        """`done` of `total` pictures of the data set have been read."""

    def working(self, what: str) -> None:
        """Something begins that may take seconds and has no steps to count."""

    def begin(self, config: RunConfig, folder: Path, steps: Mapping[str, int]) -> None:
        """Training starts or goes on; each client in `steps` takes so many of them in a round."""

    def step(self) -> None:
        """A client has taken one step."""

    def record(self, record: "Record") -> None:
        """Something was recorded: a round, an evaluation."""

    def note(self, line: str) -> None:
        """Something the user should know."""


class Several(Observer):
    """All of these observers, in order."""

    def __init__(self, *observers: Observer):
        self._observers = observers

    def decoding(self, done: int, total: int) -> None:
        """Passed on."""
        for observer in self._observers:
            observer.decoding(done, total)

    def working(self, what: str) -> None:
        """Passed on."""
        for observer in self._observers:
            observer.working(what)

    def begin(self, config: RunConfig, folder: Path, steps: Mapping[str, int]) -> None:
        """Passed on."""
        for observer in self._observers:
            observer.begin(config, folder, steps)

    def step(self) -> None:
        """Passed on."""
        for observer in self._observers:
            observer.step()

    def record(self, record: "Record") -> None:
        """Passed on."""
        for observer in self._observers:
            observer.record(record)

    def note(self, line: str) -> None:
        """Passed on."""
        for observer in self._observers:
            observer.note(line)
