"""A client's round: self-supervised training on its own images, with local alignment (Algorithm 1, lines 14-23).

One `Trainer` serves any number of clients: it owns the buffers of one model, and a client is a set of vectors copied in
and out. Nothing inside a step waits for the device; losses and counts are read once a round.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from fedgala import privacy, seeds
from fedgala.aggregation import RULES
from fedgala.config import RunConfig
from fedgala.data.domain import DomainData
from fedgala.entry import ENTRIES, Arrival, EntryNumbers, Facts
from fedgala.errors import TrainingError
from fedgala.messages import Broadcast, ClientUpdate, LocalState
from fedgala.step import Learner

Metrics = dict[str, float]  # what a client reports beside its update
GAUGED = 4  # batches on which a model's loss is measured, for rules that compare losses


def num_steps(num_images: int, batch_size: int, epochs: float) -> int:
    """Steps of a round: whole batches only, a fraction of an epoch is a fraction of its batches."""
    return max(1, round(num_images // batch_size * epochs))


def batches(num_images: int, batch_size: int, steps: int, generator: torch.Generator) -> Iterator[Tensor]:
    """`steps` batches of indices: each epoch is a fresh permutation, its last short batch is left out."""
    while steps > 0:
        order = torch.randperm(num_images, generator=generator, device=generator.device)
        whole = min(num_images // batch_size, steps)
        yield from order[: whole * batch_size].view(whole, batch_size)
        steps -= whole


class Trainer(Learner):
    """A client's round: into the buffers of the learner, through its steps, and out again."""

    def __init__(self, config: RunConfig, device: torch.device, domains: int = 1, classes: int = 0):
        super().__init__(config, device, domains, classes)
        self.entry, self.rule = ENTRIES[config.entry.rule], RULES[config.server.rule]
        self.begun = self.model.weights[self.layout.length :].clone(), self.model.private.clone()
        self.keeps_own = self.entry.keeps or self.previous is not None or len(self.begun[0]) > 0

    def train_client(
        self,
        broadcast: Broadcast,
        state: LocalState | None,
        data: DomainData,
        on_step: Callable[[], None] = lambda: None,
    ) -> tuple[ClientUpdate, LocalState]:
        """One client's round: from the global model to an update, and the state that stays at home.

        Raises:
            TrainingError: the loss of a step is not a number.
        """
        facts, metrics = self._enter(broadcast, state, data)
        federation, counters = self.config.federation, (broadcast.round, data.name)
        steps = num_steps(len(data), federation.batch_size, federation.epochs)
        order = seeds.generator(self.config.seed, "order", *counters, device=self.device)
        chance = seeds.generator(self.config.seed, "views", *counters, device=self.device)
        reference = self.reference(broadcast)
        losses = torch.zeros(steps, device=self.device)
        conflicts = torch.zeros(0 if reference is None else len(reference.squared_norms), device=self.device)
        for index, batch in enumerate(batches(len(data), federation.batch_size, steps, order)):
            shown = self.make_batch(data, batch, chance)
            losses[index] = self.step_(shown, broadcast.weights, reference, conflicts, broadcast.round)
            on_step()
        metrics |= self._summary(broadcast, data, losses, conflicts / steps)
        return self._leave(broadcast, data, facts, metrics, tuple((conflicts / steps).tolist()))

    def _enter(self, broadcast: Broadcast, state: LocalState | None, data: DomainData) -> tuple[Facts, Metrics]:
        """Become the client: its weights, moments and all that it keeps. What it remembers, and has to report."""
        self.load_(broadcast.weights, broadcast.statistics)
        own, private = self.begun
        self.model.weights[self.layout.length :].copy_(own if state is None else self._own(state)[1])
        self.model.private.copy_(private if state is None else state.private)
        self.moments.copy_(state.moments if state and self.config.optimizer.state == "keep" else None)
        if self.frozen is not None:
            self.frozen.load_(broadcast.weights, broadcast.statistics)
        if state is None:
            self.method.begin(self.model.module)
            if self.previous is not None:
                self.previous.load_(broadcast.weights, broadcast.statistics)
            return {}, {}
        if self.previous is not None:
            self.previous.load_(state.own, state.statistics)
        metrics = {"gap": self.gauge(data) - state.facts["gauge"]} if "gauge" in state.facts else {}
        facts = self._begin(broadcast, state)
        if self.config.federation.norm_statistics == "local":
            self.model.statistics.copy_(state.statistics)
        return facts, metrics

    def _begin(self, broadcast: Broadcast, state: LocalState) -> Facts:
        """The weights that the entry rule begins with, for a client that was here before."""
        if not self.entry.keeps:
            return {}
        numbers = EntryNumbers(self.config.entry.share, self.config.entry.threshold)
        arrival = Arrival(broadcast.round, broadcast.weights, self._own(state)[0], state.facts)
        weights, facts = self.entry.enter(arrival, self.layout, numbers)
        self.model.weights[: self.layout.length].copy_(weights)
        return facts

    def _own(self, state: LocalState) -> tuple[Tensor, Tensor]:
        """A client's own weights: those that travel, and those that stay; as much as it keeps."""
        shared = self.layout.length
        return state.own[:shared], state.own[shared:]

    @torch.no_grad()
    def gauge(self, data: DomainData) -> float:
        """The mean loss of the present weights on some of a client's pictures, the same ones in the same views always.

        Norms are in evaluation mode, so that nothing changes.
        """
        size = self.config.federation.batch_size
        chance = seeds.generator(self.config.seed, "gauge", data.name, device=self.device)
        some = batches(len(data), size, min(GAUGED, len(data) // size), chance)
        shown = [self.make_batch(data, index, chance) for index in some]
        self.model.module.eval()
        losses = torch.stack([self.loss(batch) for batch in shown])
        self.model.module.train()
        return float(losses.mean())

    def _leave(
        self, broadcast: Broadcast, data: DomainData, facts: Facts, metrics: Metrics, conflicts: tuple[float, ...]
    ) -> tuple[ClientUpdate, LocalState]:
        model = self.model
        update, statistics = model.weights[: self.layout.length] - broadcast.weights, model.statistics.clone()
        facts = {**facts, **self.entry.leave(broadcast.round, update, self.layout)}
        if self.rule.compares_losses:
            facts = {**facts, "gauge": self.gauge(data)}
        sent = ClientUpdate(data.name, update, statistics, len(data), metrics, conflicts)
        if (bound := self.config.privacy).clip:
            sent = privacy.clipped(sent, broadcast, bound.clip, bound.statistics_clip)
        own = model.weights.clone() if self.keeps_own else model.weights[:0].clone()
        return sent, LocalState(self.moments.clone(), statistics, own, model.private.clone(), facts)

    def _summary(self, broadcast: Broadcast, data: DomainData, losses: Tensor, conflicts: Tensor) -> Metrics:
        values = losses.tolist()
        bad = next((i for i, value in enumerate(values) if not abs(value) < float("inf")), None)
        if bad is not None:
            raise TrainingError(
                f"the loss is {values[bad]} in round {broadcast.round}, client {data.name}, step {bad + 1} of "
                f"{len(values)}; the last good checkpoint is kept. Try a smaller optimizer.learning_rate "
                f"(now {self.config.optimizer.learning_rate:g})"
            )
        metrics = {"loss": sum(values) / len(values), "last_loss": values[-1], "steps": float(len(values))}
        return metrics | ({"conflict": float(conflicts.mean())} if len(conflicts) else {})
