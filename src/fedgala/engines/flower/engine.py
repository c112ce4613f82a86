"""The engine of many machines: a round's clients are sites, reached through a Flower grid.

A site is known by the name it gives itself, never by its node or by when it answers. What is wrong with an answer is
named in the records, and the round goes on without it while enough others are there.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from secrets import token_hex
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedgala.config import RunConfig
from fedgala.engines.flower import wire
from fedgala.engines.flower.answers import Question, checked, too_long
from fedgala.engines.flower.client import array_records, unpacked
from fedgala.engines.flower.frames import Frame
from fedgala.engines.flower.settings import DeployConfig
from fedgala.engines.flower.site import REFERENCE
from fedgala.errors import FedgalaError, TrainingError
from fedgala.messages import Broadcast, ClientUpdate, LocalState
from fedgala.parameters import Layouts
from fedgala.records import Record

POLL = 0.25  # seconds between questions to the grid at first; in a round that takes long they come less often
SETTLED = 20.0  # seconds after which they come at a steady pace
HELLO = 90.0  # seconds after which a node that did not say who it is is asked again
OVERHEAD = 512  # bytes that an array may take on the way beyond its values


@dataclass
class Traffic:
    """What happened on the way in a round, by site."""

    failed: dict[str, str] = field(default_factory=dict)  # why its answer does not count
    sent: dict[str, int] = field(default_factory=dict)  # bytes of arrays
    received: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)  # from question to answer


@dataclass(frozen=True)
class Load:
    """Arrays as Flower carries them, made once for all sites."""

    records: Mapping[str, ArrayRecord]
    size: int  # bytes of their values


class FlowerEngine:
    """Runs the sites of a round. What they keep stays with them, so `states` is empty."""

    def __init__(self, grid: Grid, config: RunConfig, settings: DeployConfig, layouts: Layouts):
        self.grid, self.config, self.settings, self.layouts = grid, config, settings, layouts
        self.states: dict[str, LocalState] = {}
        self.nodes: dict[int, str] = {}  # sites, by the node that they answer from
        self.held: dict[str, str] = {}  # by site, the digest of the newest global model that it says it holds
        self.note: Callable[[str], None] = lambda line: None
        self._greeted: dict[str, tuple[int, float]] = {}  # nodes that were asked who they are, and when
        self._last: str | None = None  # digest of the model of the round before
        self._traffic = Traffic()
        self._needed = max(settings.min_sites, settings.sites)

    def clients(self) -> Sequence[str]:
        """The sites that are there, once all are that the first round waits for, or a quorum after some patience.

        Raises:
            TrainingError: no quorum came in time.
        """
        end, said = time.monotonic() + self.settings.patience, 0
        while len(there := self.roll_call()) < self._needed:
            here = f"{len(there)} of {self._needed} sites are here ({', '.join(there) or 'none'})"
            if time.monotonic() > end:
                here += f" after {self.settings.patience:.0f} s"
                if len(there) < self.settings.min_sites:
                    raise TrainingError(f"{here}: start the others, or lower --min-sites; the same command goes on")
                self.note(f"{here}: going on without the others, who may join later")
                break
            if said != len(there) + 1:
                self.note(f"{here}: waiting for the others")
                said = len(there) + 1
            time.sleep(POLL)
        self._needed = self.settings.min_sites
        return there

    def __call__(
        self, broadcast: Broadcast, clients: Sequence[str], on_step: Callable[[], None] = lambda: None
    ) -> Iterator[ClientUpdate]:
        """The updates of `clients`, and of no fewer than the quorum: without it, others are asked while patience lasts.

        Raises:
            TrainingError: the quorum was lost for too long.
        """
        self._traffic = it = Traffic()
        needed, end = min(self.settings.min_sites, len(clients)), time.monotonic() + self.settings.patience
        good: dict[str, ClientUpdate] = {}
        while True:
            good |= self._ask_all(broadcast, [name for name in clients if name not in good])
            refused = too_long(good, self.settings.norm_bound, self.config.privacy.clip)
            it.failed |= refused
            good = {name: update for name, update in good.items() if name not in refused}
            if len(good) >= needed:
                break
            reasons = "; ".join(f"{name}: {reason}" for name, reason in it.failed.items())
            state = f"round {broadcast.round}: {len(good)} of at least {needed} sites gave a good answer ({reasons})"
            if time.monotonic() > end:
                raise TrainingError(f"{state}; the last whole round is saved, the same command goes on")
            self.note(f"{state}; asking the others again")
            time.sleep(min(5.0, self.settings.patience / 10))
            clients = sorted({*clients, *self.roll_call()})
        self._last = wire.digest(self._model(broadcast))
        yield from good.values()

    def notes(self) -> Record:
        """Bytes, seconds and Flower's node by site, and who failed and why."""
        it = self._traffic
        found: Record = {"sent": it.sent, "received": it.received, "site_seconds": it.seconds}
        found["nodes"] = {name: str(node) for node, name in self.nodes.items()}
        return {**found, "failed": it.failed} if it.failed else found

    def roll_call(self) -> list[str]:
        """The sites that are online, in order. New nodes are asked who they are, and known once they have answered."""
        online, now = set(self.grid.get_node_ids()), time.monotonic()
        self.nodes = {node: name for node, name in self.nodes.items() if node in online}
        self._greeted = {key: it for key, it in self._greeted.items() if it[0] in online and now - it[1] < HELLO}
        new = sorted(online - self.nodes.keys() - {node for node, _ in self._greeted.values()})
        hello = ConfigRecord({"json": json.dumps({"config": self.config.to_dict()})})
        messages = [Message(RecordDict({"words": hello}), node, MessageType.QUERY, ttl=HELLO) for node in new]
        if messages:
            keys = self.grid.push_messages(messages)
            self._greeted |= {key: (node, now) for key, node in zip(keys, new, strict=True) if key}
        for reply in self.grid.pull_messages(list(self._greeted)) if self._greeted else ():
            node, _ = self._greeted.pop(reply.metadata.reply_to_message_id, (None, 0.0))
            if node is not None:
                self._introduce(node, self._opened(reply))
        return sorted(self.nodes.values())

    def _introduce(self, node: int, answer: Frame | str) -> None:
        if isinstance(answer, str):
            self.note(f"a node does not say who it is: {answer}")
        elif (name := str(answer.words.get("site", ""))) and name not in self.nodes.values():
            self.nodes[node] = name
        else:
            self.note(f"two nodes call themselves {name!r}: the second is not asked")

    def _model(self, broadcast: Broadcast) -> wire.Arrays:
        return wire.pack(broadcast.weights, broadcast.statistics, self.layouts, self.settings.transport)

    def _ask_all(self, broadcast: Broadcast, names: Sequence[str]) -> dict[str, ClientUpdate]:
        """The updates of `names`. The reference goes to those that can't derive it, as far as is known or they say."""
        there = {name: node for node, name in self.nodes.items() if name in names}
        self._traffic.failed |= {name: "not online" for name in names if name not in there}
        model: wire.Arrays = self._model(broadcast)
        plain = whole = Load(array_records(model), wire.num_bytes(model))
        if broadcast.reference is not None:
            vector = wire.pack_vector(broadcast.reference, self.layouts.weights, self.settings.transport)
            both = model | {REFERENCE + name: array for name, array in vector.items()}
            whole = Load(array_records(both), wire.num_bytes(both))
        knowing = {name for name in there if self._last is not None and self.held.get(name) == self._last}
        good, lacking = self._ask(broadcast, there, {name: plain if name in knowing else whole for name in there})
        if lacking:
            good |= self._ask(broadcast, there, dict.fromkeys(lacking, whole))[0]
        return good

    def _ask(
        self, broadcast: Broadcast, there: Mapping[str, int], loads: Mapping[str, "Load"]
    ) -> tuple[dict[str, ClientUpdate], list[str]]:
        """The updates that came and are right, and the sites that lack what they were not sent."""
        it, questions, contents = self._traffic, {}, {}
        for name, load in loads.items():
            question = Question(name, self.config.hash, broadcast.round, token_hex(8))
            words = ConfigRecord({"json": json.dumps(self._words(broadcast, question))})
            questions[there[name]] = question
            contents[there[name]] = RecordDict({"words": words, **load.records})
            it.sent[name] = it.sent.get(name, 0) + load.size
            it.failed[name] = f"no answer in {self.settings.deadline:.0f} s"
        good: dict[str, ClientUpdate] = {}
        lacking, began = [], time.monotonic()
        for node, answer in self._exchange(contents):
            name = questions[node].site
            it.seconds[name] = round(time.monotonic() - began, 3)
            if isinstance(answer, Frame) and "lacks" in answer.words:
                lacking.append(name)
            else:
                good |= self._taken(answer, questions[node])
        return good, lacking

    def _taken(self, answer: Frame | str, question: Question) -> dict[str, ClientUpdate]:
        """The update in an answer; nothing, and a line in the records, where it does not count."""
        name, it = question.site, self._traffic
        try:
            if isinstance(answer, str):
                raise wire.WireError(answer)
            update = checked(answer, question, self.layouts, self.settings.transport)
        except FedgalaError as error:
            it.failed[name] = str(error)
            return {}
        it.failed.pop(name, None)
        it.received[name] = it.received.get(name, 0) + wire.num_bytes(answer.arrays)
        self.held[name] = str(answer.words.get("holds"))
        return {name: update}

    def _words(self, broadcast: Broadcast, question: Question) -> dict[str, Any]:
        return {
            **vars(question),
            "config": self.config.to_dict(),
            "transport": self.settings.transport,
            "previous": None if broadcast.reference is None else self._last or "",
            "deadline": self.settings.deadline,
        }

    def _exchange(self, contents: Mapping[int, RecordDict]) -> Iterator[tuple[int, Frame | str]]:
        """Ask nodes to train; each one's answer when it comes, or why there is none. Silence yields nothing."""
        if not contents:
            return
        ttl = self.settings.deadline + 60
        messages = [Message(content, node, MessageType.TRAIN, ttl=ttl) for node, content in contents.items()]
        sent = list(zip(self.grid.push_messages(messages), contents, strict=True))
        yield from ((node, "the question could not be sent") for key, node in sent if not key)
        waiting = {key: node for key, node in sent if key}
        began = time.monotonic()
        while waiting and (passed := time.monotonic() - began) < self.settings.deadline:
            for reply in self.grid.pull_messages(list(waiting)):
                key = reply.metadata.reply_to_message_id
                if key in waiting:  # else it was answered twice
                    yield waiting.pop(key), self._opened(reply)
            if waiting:
                time.sleep(POLL * (1 + min(passed, SETTLED) / 2))

    def _opened(self, reply: Message) -> Frame | str:
        if reply.has_error():
            reason = (reply.error.reason or "").strip().splitlines()
            return f"Flower error {reply.error.code}: {reason[-1][:300] if reason else 'no reason given'}"
        size = sum(len(array.data) for record in reply.content.array_records.values() for array in record.values())
        if size > self._most:
            return f"{size:,} bytes of arrays, at most {self._most:,} are an update"
        try:
            return unpacked(reply.content)
        except (ValueError, KeyError, TypeError, OSError) as error:
            return f"not an answer of ours ({type(error).__name__})"

    @cached_property
    def _most(self) -> int:
        """Bytes that an answer's arrays may take."""
        empty = wire.pack(self.layouts.weights.zeros(), self.layouts.statistics.zeros(), self.layouts)
        return wire.num_bytes(empty) + OVERHEAD * len(empty)
