"""FedGaLA's global alignment for anybody's Flower app: a strategy like `FedAvg`, with weights by agreement.

    strategy = GlobalAlignment(iterations=3, gamma=1.0, unit="model")
    strategy.start(grid, initial_arrays=ArrayRecord(model.state_dict()), num_rounds=20)

Clients are those of any Flower app: a reply holds the trained model as one `ArrayRecord` and a `MetricRecord` with
``num-examples``. What is done with the replies is the `server_step` of every other engine.
"""

import math
from collections.abc import Iterable, Mapping
from logging import INFO, WARNING
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from flwr.supercore import log
from numpy.typing import NDArray
from torch import Tensor

from fedgala.config import ServerConfig
from fedgala.messages import ClientUpdate, ServerState
from fedgala.parameters import Layout
from fedgala.server import server_step

STATISTICS = ("running_mean", "running_var")  # how torch's norms call their statistics


class GlobalAlignment(FedAvg):
    """Clients whose updates agree with the common direction count more (Algorithm 1, lines 4-13).

    An update is a reply's arrays minus those that were sent. Parameters take part in cosines. The norms' statistics do
    not, and are averaged with the clients' weights. Whole numbers, such as counters of batches, are never averaged: the
    largest is kept. A reply that is not finite, or whose arrays are not those that were sent, is named in the log and
    left out. The result does not depend on the order in which replies come. The arithmetic is in float32.

    Do not wrap it in Flower's strategies for differential privacy: their noise fits plain means.

    Args:
        iterations: how often direction and weights are computed from one another.
        gamma: share of the agreement weights in the mixture with those by ``num-examples``.
        unit: what has weights of its own: ``model``, ``layer`` or ``tensor``.
        statistics: last part of the names of arrays that are statistics.
        others: everything that `FedAvg` takes.
    """

    def __init__(
        self,
        iterations: int = 3,
        gamma: float = 1.0,
        unit: str = "model",
        statistics: tuple[str, ...] = STATISTICS,
        **others: Any,
    ):
        super().__init__(**others)
        self.alignment = ServerConfig("agreement", iterations, gamma, unit)
        self.statistics = statistics
        self.client_weights: dict[int, float] = {}  # of the last round, by node
        self._sent: dict[str, NDArray[Any]] = {}

    def summary(self) -> None:
        """Log the settings."""
        it = self.alignment
        log(INFO, "\t├──> Global alignment: iterations %d, gamma %g, unit %s", it.iterations, it.gamma, it.unit)
        super().summary()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """As `FedAvg`; what is sent is what updates are measured from."""
        self._sent = {name: np.asarray(array.numpy()) for name, array in arrays.items()}
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The next global model, and the mean of the metrics; None where no reply is of use."""
        given = sorted(replies, key=lambda reply: reply.metadata.src_node_id)
        whole = [reply for reply in given if reply.has_error() or not self._left_out(reply)]
        valid, _ = self._check_and_log_replies(whole, is_train=True)
        if not valid:
            return None, None
        arrays = self._aggregated(server_round, {str(reply.metadata.src_node_id).zfill(20): reply for reply in valid})
        return arrays, self.train_metrics_aggr_fn([reply.content for reply in valid], self.weighted_by_key)

    def _left_out(self, reply: Message) -> bool:
        """Whether a reply is of no use; the log says why."""
        reason = self._wrong_with(reply)
        if reason:
            log(WARNING, "\t> Left out the reply of node %d: %s", reply.metadata.src_node_id, reason)
        return bool(reason)

    def _wrong_with(self, reply: Message) -> str:
        records = list(reply.content.array_records.values())
        metrics = list(reply.content.metric_records.values())
        if len(records) != 1 or len(metrics) != 1 or self.weighted_by_key not in metrics[0]:
            return ""  # FedAvg's own check refuses the round
        examples = metrics[0][self.weighted_by_key]
        if not isinstance(examples, int | float) or not 0 < examples < math.inf:
            return f"{examples!r} as {self.weighted_by_key}"
        held = {name: np.asarray(array.numpy()) for name, array in records[0].items()}
        if odd := sorted(held.keys() ^ self._sent.keys()):
            return f"{len(odd)} arrays missing or unknown, {odd[0]} first"
        for name, sent in self._sent.items():
            if held[name].shape != sent.shape:
                return f"{name} has shape {held[name].shape}, expected {sent.shape}"
            if not np.isfinite(held[name]).all():
                return f"{name} has values that are not finite"
        return ""

    def _aggregated(self, number: int, replies: Mapping[str, Message]) -> ArrayRecord:
        """The arrays of the next global model, in the types of the ones that were sent."""
        weights, statistics = (self._layout(kept) for kept in (False, True))
        updates, counters = [], []
        for name, reply in replies.items():
            held = {key: array.numpy() for key, array in _only(reply.content.array_records).items()}
            examples = _only(reply.content.metric_records)[self.weighted_by_key]
            update = _flat(weights, held) - _flat(weights, self._sent)
            updates.append(ClientUpdate(name, update, _flat(statistics, held), examples, {}))
            counters.append({key: array for key, array in held.items() if not _floats(array)})
        state = ServerState(number - 1, _flat(weights, self._sent), _flat(statistics, self._sent), None)
        new, aggregate = server_step(state, updates, self.alignment, weights, statistics)
        self.client_weights = {int(name): share for name, share in aggregate.weights.items()}
        log(INFO, "\t> Weights by agreement: %s", {name: round(w, 4) for name, w in self.client_weights.items()})
        found = {**weights.views(new.weights), **statistics.views(new.statistics)}
        arrays = {name: tensor.numpy().astype(self._sent[name].dtype) for name, tensor in found.items()}
        arrays |= {name: np.max([held[name] for held in counters], axis=0) for name in counters[0]}
        return ArrayRecord({name: Array(np.asarray(arrays[name])) for name in self._sent})

    def _layout(self, statistics: bool) -> Layout:
        """Where floating arrays lie: those that are statistics, or those that are not."""
        return Layout.of(
            [
                (name, torch.empty(array.shape, device="meta"))
                for name, array in self._sent.items()
                if _floats(array) and (name.rpartition(".")[2] in self.statistics) is statistics
            ],
            torch.device("cpu"),
        )


def _only(records: Mapping[str, Any]) -> Any:
    return next(iter(records.values()))


def _floats(array: NDArray[Any]) -> bool:
    return np.issubdtype(array.dtype, np.floating)


def _flat(layout: Layout, arrays: Mapping[str, NDArray[Any]]) -> Tensor:
    named = {segment.name: torch.from_numpy(np.array(arrays[segment.name], np.float32)) for segment in layout.segments}
    return layout.flatten(named)
