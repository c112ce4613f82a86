"""The engine of one machine: a loop over the clients on one device."""

from collections.abc import Callable, Iterator, Sequence

from fedgala.client import Trainer
from fedgala.data.domain import DomainData
from fedgala.messages import Broadcast, ClientUpdate, LocalState
from fedgala.records import Record


class LocalEngine:
    """Runs the clients of a round one after the other; `states` are what each keeps between its rounds."""

    def __init__(self, trainer: Trainer, domains: Sequence[DomainData]):
        self.trainer = trainer
        self.domains = {domain.name: domain for domain in domains}
        self.states: dict[str, LocalState] = {}

    def clients(self) -> Sequence[str]:
        """All of them, always."""
        return list(self.domains)

    def __call__(
        self, broadcast: Broadcast, clients: Sequence[str], on_step: Callable[[], None] = lambda: None
    ) -> Iterator[ClientUpdate]:
        """The updates of `clients`, each as soon as it is there."""
        for name in clients:
            update, self.states[name] = self.trainer.train_client(
                broadcast, self.states.get(name), self.domains[name], on_step
            )
            yield update

    def notes(self) -> Record:
        """Nothing happens on the way."""
        return {}
