"""Every method of the table: it resumes exactly, keeps at home what it says, and what makes no sense is refused."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from conftest import TINY, random_domain
from fedgala import api, checkpoint
from fedgala.cli.app import run as command
from fedgala.config import PREDICTING, SSL_CHOICES, RunConfig, merge
from fedgala.data.domain import DomainData
from fedgala.data.partition import partition
from fedgala.entry import ENTRIES
from fedgala.errors import ConfigError, DataError
from fedgala.methods import METHODS
from fedgala.ssl import METHODS as LOSSES
from fedgala.ssl import darling, moco
from rounds import begin, play, trainer_for

DOMAINS = tuple(random_domain(name, 20, seed=seed) for seed, name in enumerate(("a", "b", "c")))
SMALL: dict[str, Any] = {"ssl": {"queue": 12}, "model": {"predictor_hidden": 8}, "federation": {"rounds": 50}}
CENTRALISED = ("simclr", "moco", "byol", "simsiam", "adco", "darling")


def configured(method: str, **over: Any) -> RunConfig:
    return RunConfig.from_dict(merge(merge(merge(TINY, SMALL), METHODS[method].settings), over))


def clients_of(config: RunConfig) -> tuple[DomainData, ...]:
    return api.share_out(DOMAINS, config)


def test_the_tables_and_the_configuration_name_the_same_things() -> None:
    assert set(SSL_CHOICES) == set(LOSSES) == {METHODS[name].settings["ssl"]["method"] for name in METHODS}
    assert set(PREDICTING) == {name for name, method in LOSSES.items() if method.predictor}
    used = {RunConfig.from_dict(method.settings).entry.rule for method in METHODS.values()}
    assert used == set(ENTRIES)


@pytest.mark.parametrize("method", METHODS)
def test_a_run_resumes_with_the_same_bits_also_when_clients_stay_away(method: str, tmp_path: Path) -> None:
    config = configured(method, federation={"participation": 0.67})
    clients = clients_of(config)
    whole = play(trainer_for(config, clients), clients, 4)

    first = trainer_for(config, clients)
    path, layouts, belongs = tmp_path / "c.safetensors", first.model.layouts, {"run": config.hash}
    checkpoint.save(path, play(first, clients, 2), layouts, belongs)
    resumed = play(trainer_for(config, clients), clients, 2, checkpoint.load(path, layouts, belongs))

    assert torch.equal(resumed.state.weights, whole.state.weights)
    assert torch.equal(resumed.state.statistics, whole.state.statistics)
    assert resumed.state.shares == whole.state.shares and resumed.clients.keys() == whole.clients.keys()
    for name, state in whole.clients.items():
        mine = resumed.clients[name].tensors()
        assert all(torch.equal(tensor, mine[role]) for role, tensor in state.tensors().items()), name
    assert not torch.equal(whole.state.weights, begin(first).state.weights)


@pytest.mark.parametrize("method", METHODS)
def test_what_stays_at_home_is_not_in_what_travels(method: str) -> None:
    config = configured(method)
    trainer = trainer_for(config, clients_of(config))
    travels = {segment.name.partition(".")[0] for segment in trainer.layout.segments}
    parts = {name.partition(".")[0] for name in trainer.model.module.state_dict()}
    predictor = {"predictor"} if config.ssl.predictor == "travel" else set()
    assert travels == {"encoder", "projector"} | predictor
    layouts = trainer.model.layouts
    home = {it.name.partition(".")[0] for it in (*layouts.private.segments, *layouts.trainable.segments)} - travels
    assert parts == travels | home
    if "nothing" not in METHODS[method].travels:
        assert METHODS[method].travels.count(",") + 1 == len(travels)


def private(config: RunConfig, rounds: int, name: str) -> list[Tensor]:
    """A client's own tensor `name` after each of so many rounds."""
    clients = DOMAINS[:1]
    trainer, found, snapshot = trainer_for(config, clients), [], None
    for _ in range(rounds):
        snapshot = play(trainer, clients, 1, snapshot)
        found.append(trainer.model.private_layout.views(snapshot.clients["a"].private)[name].clone())
    return found


def test_mocos_queue_moves_for_fifty_rounds_all_of_it() -> None:
    queues = private(configured("fedmoco", ssl={"queue": 12}), 50, "queue")
    steps, batch, size = 2, 8, 12
    for before, after in pairwise(queues):
        changed = (before != after).any(1)
        assert int(changed.sum()) == min(size, steps * batch)
    assert all(torch.allclose(queue.norm(dim=1), torch.ones(size), atol=1e-5) for queue in queues)


@pytest.mark.parametrize("method", ["fedmoco", "fedbyol", "fedema", "adco"])
def test_a_target_moves_for_fifty_rounds_towards_its_online_network(method: str) -> None:
    config = configured(method, partition={"clients": None}, ssl={"momentum": 0.9})
    clients = DOMAINS[:1]
    trainer, snapshot, before = trainer_for(config, clients), None, None
    name = "target.0.conv1.weight"
    for _ in range(50):
        snapshot = play(trainer, clients, 1, snapshot)
        target = trainer.model.private_layout.views(snapshot.clients["a"].private)[name].clone()
        assert before is None or not torch.equal(target, before)
        before = target
    online = trainer.model.module.get_parameter("encoder.conv1.weight")
    assert (target - online).norm() < online.norm()


def test_a_target_begins_at_the_global_model_and_follows_by_its_momentum() -> None:
    config = configured("fedbyol", ssl={"momentum": 0.8}, federation={"epochs": 0.5})  # one step
    trainer = trainer_for(config, DOMAINS[:1])
    start = trainer.model.module.get_parameter("encoder.conv1.weight").clone()
    play(trainer, DOMAINS[:1], 1)
    online = trainer.model.module.get_parameter("encoder.conv1.weight")
    target = trainer.model.module.get_parameter("target.0.conv1.weight")
    torch.testing.assert_close(target, 0.8 * start + 0.2 * online)
    assert not torch.equal(online, start)


@pytest.mark.parametrize(("size", "batch"), [(12, 8), (8, 8), (5, 8), (9, 4)])
def test_a_queue_of_any_length_is_a_ring(size: int, batch: int) -> None:
    queue, place, ring, at = torch.zeros(size, 1), torch.zeros(1), [0.0] * size, 0
    for step in range(7):
        keys = torch.arange(step * batch + 1, (step + 1) * batch + 1).float()
        moco.enqueue_(queue, place, keys[:, None])
        for key in keys.tolist()[-size:]:
            ring[at], at = key, (at + 1) % size
    assert queue[:, 0].tolist() == ring and int(place) == at


def test_queues_of_domains_take_their_own_keys_only() -> None:
    chance = torch.Generator().manual_seed(0)
    queues, places = torch.zeros(3, 4, 1), torch.zeros(3)
    rings: list[list[float]] = [[], [], []]
    for step in range(6):
        domains = torch.randint(0, 3, (9,), generator=chance)
        keys = torch.arange(step * 9 + 1, step * 9 + 10).float()[:, None]
        darling.enqueue_(queues, places, keys, domains)
        for key, domain in zip(keys[:, 0].tolist(), domains.tolist(), strict=True):
            rings[domain].append(key)
    for domain, ring in enumerate(rings):
        assert {*queues[domain, :, 0].tolist()} == {*ring[-4:]}
        assert int(places[domain]) == len(ring) % 4


def test_pooled_clients_know_their_domains() -> None:
    (client,) = partition(DOMAINS, 1, "iid", 0.5, torch.Generator())
    assert client.part_of(torch.tensor([0, 19, 20, 59])).tolist() == [0, 0, 1, 2]
    assert client.take(torch.tensor([59, 0])).part_of(torch.tensor([0, 1])).tolist() == [2, 0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"entry": {"rule": "dapu"}}, "chooses between two predictors, but simclr's does not exist"),
        ({"entry": {"rule": "dapu"}, "ssl": {"method": "byol"}}, "but byol's stays at home"),
        ({"ssl": {"predictor": "travel"}}, "ssl.predictor = 'travel': simclr has none"),
        ({"ssl": {"method": "supervised"}, "federation": {"moon": 1.0}}, "federation.moon contrasts projections"),
        ({"ssl": {"method": "simcrl"}}, "did you mean simclr"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_reason(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RunConfig.from_dict(settings)


def test_methods_that_need_labels_or_several_domains_say_so() -> None:
    bare = (random_domain("bare", labelled=False), *DOMAINS)
    with pytest.raises(DataError, match=r"'supervised' needs labels; there are none for bare"):
        api.check_method(bare, configured("supervised"))
    with pytest.raises(DataError, match=r"each client has one: that is moco; use --clients 1"):
        api.check_method(DOMAINS, configured("darling", partition={"clients": None}))
    for name in CENTRALISED:
        api.check_method(clients_of(configured(name)), configured(name))


def test_the_supervised_variant_answers_without_a_probe(tiny: Callable[..., RunConfig]) -> None:
    run = api.train(tiny(**METHODS["supervised"].settings))
    accuracies = [record["accuracy"] for record in run.records.read("evaluation")]
    assert len(accuracies) == 2 and all(0 <= value <= 1 for value in accuracies)


def test_the_command_lists_every_method_and_refuses_others(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["methods"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:]] == list(METHODS)
    assert command(["train", "--method", "fedsimcrl", "--dry-run"]) == 2
    assert "--method fedsimcrl: did you mean fedsimclr?" in capsys.readouterr().err
    assert command(["train", "--method", "fedema", "--preset", "cpu", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert 'rule = "ema"' in shown and 'encoder = "small"' in shown and "learning_rate = 0.03" in shown
