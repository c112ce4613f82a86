"""A Flower grid without processes: the real ClientApp, called in this process when a message is pushed."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flwr.app import Context, Error, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from fedgala.engines.flower.client import app

TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1

Change = Callable[[Message], Message | None]


@dataclass
class Node:
    """A site: what its Flower node was told, and what may happen to its answers."""

    context: Context
    online: bool = True
    changes: list[Change] = field(default_factory=list)  # to the next answers about training, one each
    asked: list[Message] = field(default_factory=list)


class InProcessGrid(Grid):
    """Answers are there as soon as a message was pushed, in the reverse order of the nodes."""

    def __init__(self, client: ClientApp = app) -> None:
        self.client = client
        self.nodes: dict[int, Node] = {}
        self.replies: dict[str, Message] = {}
        self.count = 0

    def add(self, node: int, **config: Any) -> Node:
        """A node whose client trains in this process."""
        context = Context(1, node, {"worker": False, **config}, RecordDict(), {})
        self.nodes[node] = Node(context)
        return self.nodes[node]

    def site(self, node: int, name: str, data: Path, state: Path) -> Node:
        """A node of a site with pictures of its own."""
        return self.add(node, site=name, data=str(data), state=str(state))

    def set_run(self, run: Run) -> None:
        """Not needed."""

    @property
    def run(self) -> Run:
        """Not needed."""
        raise NotImplementedError

    def create_message(self, *_: Any, **__: Any) -> Message:
        """Not needed."""
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        """Those that are online, the last first."""
        return [number for number, node in reversed(self.nodes.items()) if node.online]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Let the clients answer."""
        keys = []
        for message in messages:
            self.count += 1
            keys.append(f"m{self.count}")
            message.metadata.__dict__["_message_id"] = keys[-1]
            node = self.nodes[message.metadata.dst_node_id]
            node.asked.append(message)
            if (reply := self._answer(node, message)) is not None:
                self.replies[keys[-1]] = reply
        return keys

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The answers, the last first."""
        return [self.replies.pop(key) for key in reversed(list(message_ids)) if key in self.replies]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Both at once."""
        return self.pull_messages(self.push_messages(messages))

    def _answer(self, node: Node, message: Message) -> Message | None:
        try:
            reply: Message | None = self.client(message, node.context)
        except Exception as error:  # what Flower makes of a client that raises
            reply = Message(Error(2, f"{type(error).__name__}: {error}"), reply_to=message)
        if reply is not None and node.changes and message.metadata.message_type == MessageType.TRAIN:
            reply = node.changes.pop(0)(reply)
        return reply
