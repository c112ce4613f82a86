"""The strategy for other people's Flower apps: their conventions, our server step."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

flwr = pytest.importorskip("flwr", reason="the Flower engine needs fedgala[flower]")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict  # noqa: E402
from flwr.clientapp import ClientApp  # noqa: E402
from flwr.serverapp.strategy import FedAvg  # noqa: E402

import oracles  # noqa: E402
from fedgala.config import ServerConfig  # noqa: E402
from fedgala.engines import flower  # noqa: E402
from fedgala.engines.flower import GlobalAlignment  # noqa: E402
from fedgala.messages import ClientUpdate, ServerState  # noqa: E402
from fedgala.parameters import FlatModel  # noqa: E402
from fedgala.server import server_step  # noqa: E402
from flower_grid import InProcessGrid  # noqa: E402

NODES = (30, 7, 12)
Arrays = dict[str, NDArray[Any]]


def network(norm: bool = True) -> nn.Module:
    torch.manual_seed(0)
    middle = [nn.BatchNorm1d(6)] if norm else []
    return nn.Sequential(nn.Linear(4, 6), *middle, nn.ReLU(), nn.Linear(6, 3))


client = ClientApp()


@client.train()
def train(message: Message, context: Context) -> Message:
    """What tutorials do: load, train a little, send the state back with the number of examples."""
    (arrays,) = message.content.array_records.values()
    model = network("1.running_mean" in arrays)
    model.load_state_dict(arrays.to_torch_state_dict())
    chance = torch.Generator().manual_seed(context.node_id)
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    for _ in range(context.node_id % 5 + 1):
        x = torch.randn(8, 4, generator=chance)
        loss = (model(x) - x[:, :3].roll(context.node_id, 1)).square().mean()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
    metrics = MetricRecord({"num-examples": context.node_id, "loss": float(loss.detach())})
    content = RecordDict({"theirs": ArrayRecord(model.state_dict()), "numbers": metrics})
    return Message(content, reply_to=message)


def grid() -> InProcessGrid:
    found = InProcessGrid(client)
    for node in NODES:
        found.add(node)
    return found


def asked(strategy: GlobalAlignment, model: nn.Module) -> list[Message]:
    """The replies of a round."""
    there = grid()
    messages = strategy.configure_train(1, ArrayRecord(model.state_dict()), ConfigRecord(), there)
    return list(there.send_and_receive(messages))


def strategy(**settings: Any) -> GlobalAlignment:
    return GlobalAlignment(min_train_nodes=3, min_available_nodes=3, fraction_evaluate=0.0, **settings)


def arrays_of(record: ArrayRecord | None) -> Arrays:
    assert record is not None
    return {name: array.numpy() for name, array in record.items()}


@pytest.mark.parametrize(
    "settings", [{}, {"iterations": 1, "gamma": 0.5}, {"unit": "layer"}, {"unit": "tensor", "iterations": 2}]
)
def test_it_is_our_server_step(settings: dict[str, Any]) -> None:
    it, model = strategy(**settings), network()
    replies = asked(it, model)
    found, metrics = it.aggregate_train(1, replies)
    flat = FlatModel(model)
    before, statistics = flat.weights.clone(), flat.statistics.clone()
    updates = []
    for reply in replies:
        held = reply.content.array_records["theirs"].to_torch_state_dict()
        update = flat.layout.flatten({s.name: held[s.name] for s in flat.layout.segments}) - before
        kept = flat.statistics_layout.flatten({s.name: held[s.name] for s in flat.statistics_layout.segments})
        updates.append(ClientUpdate(f"{reply.metadata.src_node_id:04}", update, kept, reply.metadata.src_node_id, {}))
    config = ServerConfig(**settings)
    state, aggregate = server_step(
        ServerState(0, before, statistics, None), updates, config, flat.layout, flat.statistics_layout
    )
    expected = {**flat.layout.views(state.weights), **flat.statistics_layout.views(state.statistics)}
    result = arrays_of(found)
    assert list(result) == list(model.state_dict())
    for name, tensor in expected.items():
        assert result[name].dtype == np.float32 and np.array_equal(result[name], tensor.numpy()), name
    assert it.client_weights == {int(name): weight for name, weight in aggregate.weights.items()}
    counter = result["1.num_batches_tracked"]
    assert counter.dtype == np.int64 and counter.shape == () and int(counter) == max(node % 5 + 1 for node in NODES)
    assert metrics is not None and set(metrics) == {"loss"}


def test_weights_are_those_of_the_paper() -> None:
    it, model = strategy(), network()
    replies = asked(it, model)
    it.aggregate_train(1, replies)
    parameters = [name for name, _ in model.named_parameters()]
    updates, shares = [], []
    for reply in sorted(replies, key=lambda reply: reply.metadata.src_node_id):
        held = reply.content.array_records["theirs"].to_torch_state_dict()
        updates.append(torch.cat([(held[name] - model.state_dict()[name]).flatten() for name in parameters]))
        shares.append(reply.metadata.src_node_id / sum(NODES))
    expected = oracles.agreement(updates, shares, 3, 1.0)
    assert list(it.client_weights) == sorted(NODES)
    assert list(it.client_weights.values()) == pytest.approx(expected, rel=1e-4)


def test_order_changes_no_bit_and_without_alignment_it_is_fedavg() -> None:
    it, model = strategy(), network()
    replies = asked(it, model)
    first, second = (arrays_of(it.aggregate_train(1, order)[0]) for order in (replies, replies[::-1]))
    assert all(np.array_equal(first[name], second[name]) for name in first)
    plain = arrays_of(strategy_of_flower().aggregate_train(1, replies)[0])
    it.alignment = ServerConfig(gamma=0.0)
    without = arrays_of(it.aggregate_train(1, replies)[0])
    for name in without:
        if name != "1.num_batches_tracked":  # FedAvg makes a fraction of it
            assert np.allclose(without[name], plain[name], atol=1e-6)
    assert any(not np.allclose(first[name], plain[name], atol=1e-4) for name in first)


def strategy_of_flower() -> FedAvg:
    return FedAvg(min_train_nodes=3, min_available_nodes=3)


def test_a_run_as_in_anybodys_app() -> None:
    it = strategy(iterations=2)
    result = it.start(grid(), ArrayRecord(network().state_dict()), num_rounds=3)
    assert sorted(result.train_metrics_clientapp) == [1, 2, 3]
    losses = [float(result.train_metrics_clientapp[n]["loss"]) for n in (1, 2, 3)]  # type: ignore[arg-type]
    assert losses[2] < losses[0]
    network().load_state_dict(result.arrays.to_torch_state_dict())


def test_a_model_without_norms_and_one_in_double() -> None:
    it = strategy()
    model = network(norm=False)
    found = arrays_of(it.aggregate_train(1, asked(it, model))[0])
    assert list(found) == list(model.state_dict()) and all(array.dtype == np.float32 for array in found.values())
    assert all(array.dtype == np.float64 for array in arrays_of(doubled()).values())


def doubled() -> ArrayRecord | None:
    it = strategy()
    replies = asked(it, network(norm=False))
    it._sent = {name: array.astype(np.float64) for name, array in it._sent.items()}
    return it.aggregate_train(1, [changed(reply, lambda held: {n: np.float64(a) for n, a in held.items()})  # type: ignore[misc]
                                  for reply in replies])[0]  # fmt: skip


def changed(reply: Message, change: Callable[[Arrays], Arrays], **metrics: float) -> Message:
    """The same reply with other arrays, or other numbers."""
    held = change({name: array.numpy() for name, array in reply.content.array_records["theirs"].items()})
    numbers = MetricRecord(
        {**reply.content.metric_records["numbers"], **{k.replace("_", "-"): v for k, v in metrics.items()}}
    )
    record = ArrayRecord({name: Array(np.asarray(array)) for name, array in held.items()})
    make: Any = Message
    return make(metadata=reply.metadata, content=RecordDict({"theirs": record, "numbers": numbers}))  # type: ignore[no-any-return]


WEIGHT = "0.weight"
WRONG: dict[str, tuple[Callable[[Arrays], Arrays], dict[str, float], str]] = {
    "nan": (lambda held: held | {WEIGHT: held[WEIGHT] * np.nan}, {}, f"{WEIGHT} has values that are not finite"),
    "statistics": (
        lambda held: held | {"1.running_var": held["1.running_var"] / np.float32(0)}, {}, "1.running_var has values",
    ),
    "shape": (lambda held: held | {WEIGHT: held[WEIGHT][:2]}, {}, f"{WEIGHT} has shape (2, 4), expected (6, 4)"),
    "missing": (lambda held: {n: a for n, a in held.items() if n != WEIGHT}, {}, "1 arrays missing or unknown, 0.w"),
    "no examples": (lambda held: held, {"num_examples": 0}, "0 as num-examples"),
    "odd examples": (lambda held: held, {"num_examples": float("nan")}, "nan as num-examples"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:divide by zero")
@pytest.mark.parametrize("case", WRONG)
def test_a_reply_that_is_of_no_use_is_named_and_left_out(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedgala.engines.flower import strategy as module

    said: list[str] = []
    monkeypatch.setattr(module, "log", lambda level, text, *words: said.append(text % words))
    change, metrics, reason = WRONG[case]
    it, model = strategy(), network()
    replies = asked(it, model)
    bad = next(reply for reply in replies if reply.metadata.src_node_id == 12)
    good = [reply for reply in replies if reply is not bad]
    with_it = arrays_of(it.aggregate_train(1, [changed(bad, change, **metrics), *good])[0])
    assert any("node 12" in line and reason in line for line in said), said
    without = arrays_of(it.aggregate_train(1, good)[0])
    assert all(np.array_equal(with_it[name], without[name]) for name in without) and 12 not in it.client_weights
    assert it.aggregate_train(1, [changed(bad, change, **metrics)]) == (None, None)


def test_there_is_one_name_to_import() -> None:
    assert flower.__all__ == ["GlobalAlignment"]
    with pytest.raises(AttributeError, match="no attribute"):
        flower.nonsense  # noqa: B018
