"""A site's Flower client: thin, since Flower starts it anew for every message. The site's worker does the work.

What a node is told: ``--node-config 'site="a" data="/pictures"'``, and if wanted ``state="/folder"`` for what the site
keeps, ``worker=false`` to train in this process, ``idle=900`` seconds after which the worker ends. A node of a Flower
simulation has none of these: it is the client of its number in the run's own data set.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedgala import __version__
from fedgala.engines.flower import warm
from fedgala.engines.flower.frames import Frame

OVERDUE = 3  # exit code of a client that hangs beyond its round's deadline
GRACE = 10.0  # seconds beyond the deadline
IDLE = 900  # seconds

app = ClientApp()


@app.query()
def hello(message: Message, context: Context) -> Message:
    """Who this is. The worker is started on the side, so that it is warm when the first round comes."""
    name, data, folder = place_of(context, unpacked(message.content).words)
    if _worker_wanted(context) and not (path := warm.socket_path(name, folder)).exists():
        warm.start(name, data, folder, path, _idle(context))
    words: dict[str, Any] = {"site": name, "version": __version__}
    return Message(RecordDict({"words": ConfigRecord({"json": json.dumps(words)})}), reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    """One round, by the worker; in this process where none can be had."""
    request = unpacked(message.content)
    deadline = float(request.words["deadline"])
    watchdog = threading.Timer(deadline + GRACE, os._exit, [OVERDUE])
    watchdog.daemon = True
    watchdog.start()  # a hung client would block its node for the next round
    answer = answered(request, context, deadline)
    watchdog.cancel()
    context.state["fedgala"] = MetricRecord({"round": int(request.words["round"])})  # large state would be lost here
    return Message(packed(answer), reply_to=message)


def answered(request: Frame, context: Context, seconds: float) -> Frame:
    """The site's answer, within `seconds` where its worker gives it."""
    name, data, folder = place_of(context, request.words)
    if _worker_wanted(context):
        began = time.monotonic()
        try:
            path = warm.ensure(name, data, folder, _idle(context), min(warm.START, seconds))
            return warm.ask(path, request, max(1.0, seconds - (time.monotonic() - began)))
        except warm.WorkerGone as error:
            if time.monotonic() - began > seconds / 2:  # too late to begin again
                return Frame({"error": f"the worker gave no answer: {error}"})
            print(f"fedgala: no worker ({error}): this round is trained here, slower", file=sys.stderr, flush=True)
    from fedgala.engines.flower.site import Place, Site

    return Site(Place(name, data, folder)).answer(request)


def place_of(context: Context, words: Mapping[str, Any]) -> tuple[str, str | None, Path]:
    """Name, pictures and folder of this site.

    Raises:
        ValueError: the node was not told who it is.
    """
    told = context.node_config
    if "site" in told:
        name = str(told["site"])
    elif "partition-id" in told:
        from fedgala.engines.flower.site import simulated_name

        name = simulated_name(json.dumps(words["config"]), int(told["partition-id"]))
    else:
        raise ValueError('start this node with --node-config \'site="NAME" data="/FOLDER"\'')
    if not name or Path(name).name != name:
        raise ValueError(f"site={name!r}: a name, not a path")
    home = Path(str(told.get("state", Path.home() / ".local" / "share" / "fedgala")))
    return name, str(told["data"]) if "data" in told else None, home / "sites" / name


def _worker_wanted(context: Context) -> bool:
    return bool(context.node_config.get("worker", "site" in context.node_config)) and sys.platform == "linux"


def _idle(context: Context) -> float:
    return float(context.node_config.get("idle", IDLE))


def unpacked(content: RecordDict) -> Frame:
    """What a message holds: words as JSON, arrays by their record."""
    arrays: dict[str, Any] = {}
    for key, record in content.array_records.items():
        prefix = "" if key == "arrays" else f"{key}/"
        arrays |= {f"{prefix}{name}": array.numpy() for name, array in record.items()}
    return Frame(json.loads(str(content.config_records["words"]["json"])), arrays)


def packed(frame: Frame) -> RecordDict:
    """A frame as Flower carries it; the inverse of `unpacked`. Sample counts stand where Flower's own tools look."""
    metrics = {"num-examples": int(frame.words.get("samples", 0)), **frame.words.get("metrics", {})}
    words = ConfigRecord({"json": json.dumps(dict(frame.words))})
    return RecordDict({"words": words, "metrics": MetricRecord(metrics), **array_records(frame.arrays)})


def array_records(arrays: Mapping[str, Any]) -> dict[str, ArrayRecord]:
    """Named arrays as Flower carries them: a record for each first part of a name (``reference/``), and ``arrays``."""
    records: dict[str, dict[str, Array]] = {"arrays": {}}
    for name, array in arrays.items():
        key, _, rest = name.rpartition("/")
        records.setdefault(key or "arrays", {})[rest] = Array(array)
    return {key: ArrayRecord(held) for key, held in records.items()}
