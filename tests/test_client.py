"""The engine adds nothing of its own: a round is SimCLR with torch.optim, and alignment where asked for."""

from typing import Any

import pytest
import torch
from torch.nn import functional as F

from conftest import TINY, random_domain
from fedgala import seeds
from fedgala.client import Trainer, batches, num_steps
from fedgala.config import RunConfig, ServerConfig, merge
from fedgala.data import augment
from fedgala.errors import TrainingError
from fedgala.messages import Broadcast, ServerState
from fedgala.server import server_step
from fedgala.ssl.losses import nt_xent

CPU = torch.device("cpu")
ROUNDS, DATA = 3, random_domain("only", 24)
OFF = {"local": {"rule": "none"}, "server": {"rule": "fedavg"}}


def config(**over: Any) -> RunConfig:
    return RunConfig.from_dict(merge(TINY, over))


def engine_run(settings: RunConfig) -> dict[str, torch.Tensor]:
    """`ROUNDS` rounds of one client through trainer and server."""
    trainer = Trainer(settings, CPU)
    state = ServerState(0, trainer.model.weights.clone(), trainer.model.statistics.clone(), None)
    local = None
    for _ in range(ROUNDS):
        update, local = trainer.train_client(state.broadcast(), local, DATA)
        state, _ = server_step(state, [update], settings.server, trainer.layout, trainer.model.statistics_layout)
    trainer.load_(state.weights, state.statistics)
    return {name: tensor.clone() for name, tensor in trainer.model.module.state_dict().items()}


def naive_run(settings: RunConfig, optimizer: str) -> dict[str, torch.Tensor]:
    """The same training as one would write it without this package's engine."""
    module = Trainer(settings, CPU).model.module
    for parameter in module.parameters():
        parameter.grad = None
    rate, federation = settings.optimizer.learning_rate, settings.federation
    optim: torch.optim.Optimizer = torch.optim.Adam(module.parameters(), lr=rate)
    if optimizer == "sgd":
        optim = torch.optim.SGD(module.parameters(), lr=rate, momentum=0.9)
    for number in range(1, ROUNDS + 1):
        start = [p.detach().clone() for p in module.parameters()]
        order = seeds.generator(settings.seed, "order", number, DATA.name)
        chance = seeds.generator(settings.seed, "views", number, DATA.name)
        for batch in torch.split(torch.randperm(len(DATA), generator=order), federation.batch_size):
            draws = augment.draw(DATA.sizes[batch].repeat(2, 1), augment.Views(crop=16), chance)
            views = augment.apply(DATA.images[batch], draws, 16)
            z = module(views.contiguous(memory_format=torch.channels_last))
            loss = nt_xent(z, settings.ssl.temperature)
            for p, q in zip(module.parameters(), start, strict=True):
                loss = loss + federation.l2 * p.square().sum() + federation.proximal * (p - q).square().sum()
            optim.zero_grad()
            torch.autograd.backward(loss)
            optim.step()
    return module.state_dict()


def moved(after: dict[str, torch.Tensor], before: dict[str, torch.Tensor]) -> torch.Tensor:
    """How far training went, but for a bias before a norm: its true gradient is 0, and Adam amplifies the rounding."""
    names = [n for n, t in before.items() if t.is_floating_point() and n != "projector.0.bias" and "running" not in n]
    return torch.cat([(after[name] - before[name]).flatten() for name in names])


@pytest.mark.parametrize(
    ("name", "rate", "penalty"),
    [
        ("adam", 1e-3, {}),
        ("sgd", 1e-2, {}),
        ("sgd", 1e-2, {"l2": 0.1}),
        ("sgd", 1e-2, {"proximal": 1.0}),
        ("sgd", 1e-2, {"l2": 0.1, "proximal": 1.0}),
    ],
)
def test_one_client_without_alignment_is_plain_training(name: str, rate: float, penalty: dict[str, float]) -> None:
    settings = config(**OFF, optimizer={"name": name, "learning_rate": rate}, federation=penalty)
    start = {n: t.clone() for n, t in Trainer(settings, CPU).model.module.state_dict().items()}
    found, expected = moved(engine_run(settings), start), moved(naive_run(settings, name), start)
    assert float((found - expected).norm() / expected.norm()) < 1e-3
    if penalty:
        plain = config(**OFF, optimizer={"name": name, "learning_rate": rate})
        assert float((found - moved(engine_run(plain), start)).norm() / expected.norm()) > 0.05


def broadcast(trainer: Trainer, number: int, reference: torch.Tensor | None) -> Broadcast:
    return Broadcast(number, trainer.model.weights.clone(), trainer.model.statistics.clone(), reference)


def test_a_reference_against_everything_discards_everything() -> None:
    settings = config(local={"rule": "discard", "unit": "tensor", "threshold": 1.0})
    trainer = Trainer(settings, CPU)
    sent = broadcast(trainer, 2, torch.randn(trainer.layout.length))
    update, state = trainer.train_client(sent, None, DATA)
    assert update.metrics["conflict"] == 1 and set(update.conflicts) == {1.0}
    assert not update.update.any() and not state.moments.first.any() and not state.moments.steps.any()


def test_local_alignment_waits_for_its_first_round() -> None:
    settings = config(local={"rule": "discard", "threshold": 1.0, "first_round": 3})
    trainer = Trainer(settings, CPU)
    sent = broadcast(trainer, 2, torch.randn(trainer.layout.length))
    assert "conflict" not in trainer.train_client(sent, None, DATA)[0].metrics
    assert trainer.train_client(Broadcast(3, *list(vars(sent).values())[1:]), None, DATA)[0].metrics["conflict"] == 1


def test_optimizer_state_is_kept_or_reset() -> None:
    steps = {}
    for choice in ("keep", "reset"):
        trainer = Trainer(config(optimizer={"state": choice}), CPU)
        sent = broadcast(trainer, 1, None)
        _, state = trainer.train_client(sent, None, DATA)
        _, state = trainer.train_client(sent, state, DATA)
        steps[choice] = sorted(set(state.moments.steps.tolist()))
    assert steps == {"keep": [6.0], "reset": [3.0]}


def test_local_norm_statistics_stay_with_the_client() -> None:
    found = {}
    for choice in ("average", "local"):
        trainer = Trainer(config(federation={"norm_statistics": choice}), CPU)
        sent = broadcast(trainer, 1, None)
        _, state = trainer.train_client(sent, None, DATA)
        trainer._enter(sent, state, DATA)
        found[choice] = torch.equal(trainer.model.statistics, state.statistics)
    assert found == {"average": False, "local": True}


def test_swapping_clients_in_and_out_changes_nothing() -> None:
    settings, other = config(), random_domain("other", 16, seed=1)
    alone, shared = Trainer(settings, CPU), Trainer(settings, CPU)
    sent = broadcast(alone, 1, None)
    first, state = alone.train_client(sent, None, DATA)
    again, _ = alone.train_client(sent, state, DATA)
    _, kept = shared.train_client(sent, None, DATA)
    shared.train_client(sent, None, other)
    swapped, _ = shared.train_client(sent, kept, DATA)
    assert torch.equal(again.update, swapped.update) and not torch.equal(first.update, again.update)


def test_batches_are_whole_and_every_epoch_is_a_permutation() -> None:
    found = list(batches(10, 4, 5, torch.Generator().manual_seed(0)))
    assert [len(batch) for batch in found] == [4] * 5
    for epoch in (found[:2], found[2:4]):
        assert len(set(torch.cat(epoch).tolist())) == 8
    assert [num_steps(100, 10, epochs) for epochs in (1, 2.5, 0.01)] == [10, 25, 1]


def test_a_loss_that_is_not_a_number_names_round_client_and_step() -> None:
    trainer = Trainer(config(), CPU)
    sent = broadcast(trainer, 4, None)
    sent.weights.fill_(float("nan"))
    with pytest.raises(TrainingError, match="nan in round 4, client only, step 1 of 3"):
        trainer.train_client(sent, None, DATA)


def test_the_server_rejects_what_is_not_finite_by_name_and_goes_on() -> None:
    trainer = Trainer(config(), CPU)
    sent = broadcast(trainer, 1, None)
    state = ServerState(0, sent.weights, sent.statistics, None)
    good, _ = trainer.train_client(sent, None, DATA)
    bad, _ = trainer.train_client(sent, None, random_domain("broken", 16))
    bad.update[0] = float("inf")
    new, aggregate = server_step(state, [good, bad], ServerConfig(), trainer.layout, trainer.model.statistics_layout)
    assert aggregate.rejected == ("broken",) and aggregate.weights == {"only": 1.0}
    torch.testing.assert_close(new.weights, sent.weights + good.update)
    with pytest.raises(TrainingError, match=r"no client sent a finite update \(broken\)"):
        server_step(state, [bad], ServerConfig(), trainer.layout, trainer.model.statistics_layout)


def test_arrival_order_does_not_change_a_bit() -> None:
    trainer = Trainer(config(), CPU)
    sent = broadcast(trainer, 1, None)
    state = ServerState(0, sent.weights, sent.statistics, None)
    updates = [trainer.train_client(sent, None, random_domain(name, seed=i))[0] for i, name in enumerate("abc")]
    layouts = trainer.layout, trainer.model.statistics_layout
    forward, backward = (server_step(state, order, ServerConfig(), *layouts)[0] for order in (updates, updates[::-1]))
    assert torch.equal(forward.weights, backward.weights) and torch.equal(forward.statistics, backward.statistics)


def test_views_lie_in_the_unit_range_and_differ() -> None:
    trainer = Trainer(config(), CPU)
    views = trainer.make_views(DATA, torch.arange(4), torch.Generator().manual_seed(0))
    assert views.shape == (8, 3, 16, 16) and 0 <= float(views.min()) < float(views.max()) <= 1
    assert float(F.mse_loss(views[:4], views[4:])) > 0
