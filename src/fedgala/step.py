"""One training step on a client's batch: views, loss, gradient, local alignment, optimizer, what follows it.

A `Learner` owns the buffers of one model. Nothing here waits for the device or knows of rounds and clients.
"""

from dataclasses import asdict

import torch
from torch import Tensor

from fedgala import alignment, seeds
from fedgala.config import RunConfig
from fedgala.data import augment
from fedgala.data.domain import DomainData
from fedgala.frozen import FrozenModel
from fedgala.messages import Broadcast, ServerState
from fedgala.models import ENCODERS, build_encoder
from fedgala.optim import OPTIMIZERS, Step
from fedgala.parameters import FlatModel
from fedgala.schedule import learning_rate
from fedgala.ssl import METHODS, Batch, Recipe, SSLMethod
from fedgala.ssl.losses import model_contrast


def build_model(config: RunConfig, device: torch.device, domains: int, classes: int) -> tuple[FlatModel, SSLMethod]:
    """The model of a configuration with fresh weights, the same wherever it is built; and its method."""
    method, model, ssl = METHODS[config.ssl.method], config.model, config.ssl
    recipe = Recipe(
        ENCODERS[model.encoder].features, model.projector_hidden, model.projector_output, ssl.head,
        model.predictor_hidden, ssl.temperature, ssl.momentum, ssl.queue, ssl.adversary, ssl.adversary_temperature,
        ssl.relation, domains, classes,
    )  # fmt: skip
    encoder = build_encoder(model.encoder, seeds.generator(config.seed, "encoder"))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seeds.seed_for(config.seed, "projector"))
        module = method.build(encoder, recipe)
    own_predictor = method.predictor and ssl.predictor == "home"
    return FlatModel(module.to(device).train(), (*method.home, *(["predictor"] if own_predictor else []))), method


class Learner:
    """The training step of a configuration on a device.

    `domains` and `classes` are how many there are in the clients' data, for methods that tell them apart.
    """

    def __init__(self, config: RunConfig, device: torch.device, domains: int = 1, classes: int = 0):
        self.config, self.device = config, device
        self.model, self.method = build_model(config, device, domains, classes)
        self.layout = self.model.shared  # of what travels
        self.moments = OPTIMIZERS[config.optimizer.name].start(self.model.layout)
        self.views = augment.Views(**asdict(config.views))
        self.everything = torch.ones(len(self.model.layout.segments), dtype=torch.bool, device=device)
        low_precision = {"auto": device.type == "cuda", "bfloat16": True, "float32": False}
        self.autocast = low_precision[config.engine.precision]
        contrast = bool(config.federation.moon)
        self.frozen = FrozenModel(self.model.module) if contrast or "frozen" in self.method.needs else None
        self.previous = FrozenModel(self.model.module) if contrast else None

    def step_(
        self, batch: Batch, global_weights: Tensor, reference: alignment.Reference | None, conflicts: Tensor, round: int
    ) -> Tensor:
        """One step; the loss before it."""
        loss = self.differentiate_(batch)
        self.regularize_(global_weights)
        keep = self.everything if reference is None else self.align_(reference, conflicts)
        self.optimize_(keep, round)
        self.method.after_step(self.model.module)
        return loss

    def make_batch(self, data: DomainData, index: Tensor, generator: torch.Generator) -> Batch:
        """What a step shows the method: two random views of each image, and what else it needs."""
        needs, others = self.method.needs, None
        views = self.make_views(data, index, generator)
        if "others" in needs:
            some = torch.randint(len(data), (len(index) // 2,), generator=generator, device=generator.device)
            others = self.make_views(data, some, generator, copies=1)
        labels = data.labels[index] if "labels" in needs and data.labels is not None else None
        return Batch(
            views,
            labels,
            data.part_of(index) if "domains" in needs else None,
            others,
            self.frozen if "frozen" in needs else None,
        )

    def make_views(self, data: DomainData, index: Tensor, generator: torch.Generator, copies: int = 2) -> Tensor:
        """(copies x B, 3, crop, crop) random views of each image of the batch."""
        draws = augment.draw(data.sizes[index].repeat(copies, 1), self.views, generator)
        views = augment.apply(data.pictures(index), draws, self.views.crop)
        return views.contiguous(memory_format=torch.channels_last)

    def differentiate_(self, batch: Batch) -> Tensor:
        """The loss of a batch; its gradient is left in `model.gradients`."""
        self.model.gradients.zero_()
        loss = self.loss(batch)
        torch.autograd.backward(loss)
        return loss.detach()

    def loss(self, batch: Batch) -> Tensor:
        """The method's loss, and MOON's term."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.autocast):
            outcome = self.method.loss(self.model.module, batch)
            if self.frozen is None or self.previous is None:
                return outcome.loss
            views = batch.views[: len(outcome.projections)]
            known, before = self.frozen(views), self.previous(views)
        federation = self.config.federation
        return outcome.loss + federation.moon * model_contrast(
            outcome.projections, known, before, federation.moon_temperature
        )

    def regularize_(self, global_weights: Tensor) -> None:
        """Add the gradients of lambda |theta|^2 and mu |theta - theta_global|^2, the latter of what travels."""
        l2, proximal = self.config.federation.l2, self.config.federation.proximal
        model, shared = self.model, self.layout.length
        if l2:
            model.gradients.add_(model.weights, alpha=2 * l2)
        if proximal:
            model.gradients[:shared].add_(model.weights[:shared] - global_weights, alpha=2 * proximal)

    def reference(self, broadcast: Broadcast) -> alignment.Reference | None:
        """What this round's gradients are judged by, if they are judged at all."""
        local = self.config.local
        if local.rule == "none" or broadcast.reference is None or broadcast.round < local.first_round:
            return None
        return alignment.Reference.of(broadcast.reference, self.layout, local.unit)

    def align_(self, reference: alignment.Reference, conflicts: Tensor) -> Tensor:
        """Local alignment of the gradient: which tensors move; counts the units that did not agree.

        Only what travels has a global direction to agree with; what stays at home always moves.
        """
        local, gradients = self.config.local, self.model.gradients[: self.layout.length]
        evidence = alignment.judge(gradients, reference, self.layout, local.threshold, alignment.SIGNS[local.sign])
        conflicts += ~evidence.agrees
        keep = alignment.LOCAL_RULES[local.rule](gradients, reference, evidence, self.layout, local.factor)
        return torch.cat([keep, self.everything[len(keep) :]])

    def optimize_(self, keep: Tensor, round: int) -> None:
        """One optimizer step on the tensors in `keep`."""
        optimizer, rounds, model = self.config.optimizer, self.config.federation.rounds, self.model
        rate = learning_rate(optimizer.schedule, optimizer.learning_rate, round, rounds)
        step = Step(rate, optimizer.momentum, optimizer.weight_decay)
        OPTIMIZERS[optimizer.name].step_(model.weights, model.gradients, self.moments, keep, model.layout, step)

    def beginning(self) -> ServerState:
        """The global model before the first round: the present weights and statistics."""
        return ServerState(0, self.model.weights[: self.layout.length].clone(), self.model.statistics.clone(), None)

    def load_(self, weights: Tensor, statistics: Tensor) -> None:
        """Put a global model into the buffers."""
        self.model.weights[: self.layout.length].copy_(weights)
        self.model.statistics.copy_(statistics)
