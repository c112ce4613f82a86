"""A client's round: self-supervised training on its own images, with local alignment (Algorithm 1, lines 14-23).

One `Trainer` serves any number of clients: it owns the buffers of one model, and a client is a set of vectors copied in
and out. Nothing inside a step waits for the device; losses and counts are read once a round.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict

import torch
from torch import Tensor

from fedgala import alignment, privacy, seeds
from fedgala.config import RunConfig
from fedgala.data import augment
from fedgala.data.domain import DomainData
from fedgala.errors import TrainingError
from fedgala.messages import Broadcast, ClientUpdate, LocalState
from fedgala.models import ENCODERS, build_encoder
from fedgala.optim import OPTIMIZERS, Step
from fedgala.parameters import FlatModel
from fedgala.schedule import learning_rate
from fedgala.ssl import METHODS


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


class Trainer:
    """The training step of a configuration on a device."""

    def __init__(self, config: RunConfig, device: torch.device):
        self.config, self.device = config, device
        self.method = METHODS[config.ssl.method]
        model, size = config.model, ENCODERS[config.model.encoder].features
        encoder = build_encoder(model.encoder, seeds.generator(config.seed, "encoder"))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seeds.seed_for(config.seed, "projector"))
            module = self.method.build(encoder, size, model.projector_hidden, model.projector_output)
        self.model = FlatModel(module.to(device).train())
        self.layout = self.model.layout
        self.moments = OPTIMIZERS[config.optimizer.name].start(self.layout)
        self.views = augment.Views(**asdict(config.views))
        self.everything = torch.ones(len(self.layout.segments), dtype=torch.bool, device=device)
        low_precision = {"auto": device.type == "cuda", "bfloat16": True, "float32": False}
        self.autocast = low_precision[config.engine.precision]

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
        self._enter(broadcast, state)
        federation, counters = self.config.federation, (broadcast.round, data.name)
        steps = num_steps(len(data), federation.batch_size, federation.epochs)
        order = seeds.generator(self.config.seed, "order", *counters, device=self.device)
        chance = seeds.generator(self.config.seed, "views", *counters, device=self.device)
        reference = self.reference(broadcast)
        losses = torch.zeros(steps, device=self.device)
        conflicts = torch.zeros(0 if reference is None else len(reference.squared_norms), device=self.device)
        for index, batch in enumerate(batches(len(data), federation.batch_size, steps, order)):
            losses[index] = self.differentiate_(self.make_views(data, batch, chance))
            self.regularize_(broadcast.weights)
            keep = self.everything if reference is None else self.align_(reference, conflicts)
            self.optimize_(keep, broadcast.round)
            on_step()
        return self._leave(broadcast, data, losses, conflicts / steps)

    def make_views(self, data: DomainData, batch: Tensor, generator: torch.Generator) -> Tensor:
        """(2B, 3, crop, crop) two random views of each image of the batch."""
        draws = augment.draw(data.sizes[batch].repeat(2, 1), self.views, generator)
        views = augment.apply(data.pictures(batch), draws, self.views.crop)
        return views.contiguous(memory_format=torch.channels_last)

    def differentiate_(self, views: Tensor) -> Tensor:
        """The loss of the views; its gradient is left in `model.gradients`."""
        self.model.gradients.zero_()
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.autocast):
            loss = self.method.loss(self.model.module, views, self.config.ssl.temperature)
        torch.autograd.backward(loss)
        return loss.detach()

    def regularize_(self, global_weights: Tensor) -> None:
        """Add the gradients of lambda |theta|^2 and mu |theta - theta_global|^2."""
        l2, proximal = self.config.federation.l2, self.config.federation.proximal
        if l2 + proximal:
            self.model.gradients.add_(self.model.weights, alpha=2 * (l2 + proximal))
        if proximal:
            self.model.gradients.sub_(global_weights, alpha=2 * proximal)

    def reference(self, broadcast: Broadcast) -> alignment.Reference | None:
        """What this round's gradients are judged by, if they are judged at all."""
        local = self.config.local
        if local.rule == "none" or broadcast.reference is None or broadcast.round < local.first_round:
            return None
        return alignment.Reference.of(broadcast.reference, self.layout, local.unit)

    def align_(self, reference: alignment.Reference, conflicts: Tensor) -> Tensor:
        """Local alignment of the gradient: which tensors move; counts the units that did not agree."""
        local, gradients = self.config.local, self.model.gradients
        evidence = alignment.judge(gradients, reference, self.layout, local.threshold, alignment.SIGNS[local.sign])
        conflicts += ~evidence.agrees
        return alignment.LOCAL_RULES[local.rule](gradients, reference, evidence, self.layout, local.factor)

    def optimize_(self, keep: Tensor, round: int) -> None:
        """One optimizer step on the tensors in `keep`."""
        optimizer, rounds = self.config.optimizer, self.config.federation.rounds
        rate = learning_rate(optimizer.schedule, optimizer.learning_rate, round, rounds)
        step = Step(rate, optimizer.momentum, optimizer.weight_decay)
        OPTIMIZERS[optimizer.name].step_(
            self.model.weights, self.model.gradients, self.moments, keep, self.layout, step
        )

    def load_(self, weights: Tensor, statistics: Tensor) -> None:
        """Put a global model into the buffers."""
        self.model.weights.copy_(weights)
        self.model.statistics.copy_(statistics)

    def _enter(self, broadcast: Broadcast, state: LocalState | None) -> None:
        self.load_(broadcast.weights, broadcast.statistics)
        if state is not None and self.config.federation.norm_statistics == "local":
            self.model.statistics.copy_(state.statistics)
        self.moments.copy_(state.moments if state and self.config.optimizer.state == "keep" else None)

    def _leave(
        self, broadcast: Broadcast, data: DomainData, losses: Tensor, conflicts: Tensor
    ) -> tuple[ClientUpdate, LocalState]:
        values = losses.tolist()
        bad = next((i for i, value in enumerate(values) if not abs(value) < float("inf")), None)
        if bad is not None:
            raise TrainingError(
                f"the loss is {values[bad]} in round {broadcast.round}, client {data.name}, step {bad + 1} of "
                f"{len(values)}; the last good checkpoint is kept. Try a smaller optimizer.learning_rate "
                f"(now {self.config.optimizer.learning_rate:g})"
            )
        metrics = {"loss": sum(values) / len(values), "last_loss": values[-1], "steps": float(len(values))}
        if len(conflicts):
            metrics["conflict"] = float(conflicts.mean())
        statistics = self.model.statistics.clone()
        update = ClientUpdate(
            data.name, self.model.weights - broadcast.weights, statistics, len(data), metrics, tuple(conflicts.tolist())
        )
        if (bound := self.config.privacy).clip:
            update = privacy.clipped(update, broadcast, bound.clip, bound.statistics_clip)
        return update, LocalState(self.moments.clone(), statistics)
