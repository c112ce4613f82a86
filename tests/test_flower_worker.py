"""A site's worker: frames on its socket, one worker per site, and that it ends when it should."""

import os
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from conftest import TINY
from fedgala.client import Trainer
from fedgala.config import RunConfig, merge
from fedgala.engines.flower import warm, wire, worker
from fedgala.engines.flower.frames import MAGIC, Frame, FrameError, receive, send
from fedgala.engines.flower.site import KEPT, Place, Site

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers run on Linux")


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    one.settimeout(5)
    other.settimeout(5)
    with one, other:
        yield one, other


@pytest.fixture(autouse=True)
def _sockets(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("r")))


def test_a_frame_comes_out_as_it_went_in(pair: tuple[socket.socket, socket.socket]) -> None:
    arrays: dict[str, NDArray[Any]] = {
        "a.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
        "scalar": np.array(2, np.uint16),
        "empty": np.zeros((0, 4), np.float16),
        "turned": np.arange(6, dtype=np.float32).reshape(2, 3).T,
    }
    send(pair[0], Frame({"round": 3, "text": "é"}, arrays))
    found = receive(pair[1])
    assert found.words == {"round": 3, "text": "é"} and list(found.arrays) == list(arrays)
    for name, array in arrays.items():
        assert found.arrays[name].dtype == array.dtype and np.array_equal(found.arrays[name], array)


def framed(head: bytes) -> bytes:
    return MAGIC + struct.pack(">Q", len(head)) + head


@pytest.mark.parametrize(
    "content",
    [
        b"GET / HTTP/1.1\r\n\r\n and so on",
        framed(b"not JSON"),
        framed(b'{"words": {}}'),
        framed(b'{"words": {}, "arrays": [["a", "object", [1]]]}'),
        framed(b'{"words": {}, "arrays": [["a", "float32", [-1, -4]]]}'),
        framed(b'{"words": {}, "arrays": [["a", "float32", [99999999999999]]]}'),
        MAGIC + struct.pack(">Q", 1 << 40),
        framed(b'{"words": {}, "arrays": [["a", "float32", [4]]]}') + b"123",
        b"",
    ],
)
def test_what_is_no_frame_is_refused(pair: tuple[socket.socket, socket.socket], content: bytes) -> None:
    pair[0].sendall(content)
    pair[0].close()
    with pytest.raises(FrameError):
        receive(pair[1])


def served(path: Path, idle: float = 5.0) -> threading.Thread:
    """A worker that answers with what it was asked, in a thread."""
    listener = worker.listen(path)

    def run() -> None:
        with listener:
            worker.serve(listener, lambda request: Frame({"echo": request.words["text"]}, request.arrays), idle)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_requests_are_answered_one_by_one_and_visitors_do_no_harm(tmp_path: Path) -> None:
    path = warm.socket_path("a", tmp_path)
    thread = served(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    for text in ("one", "two"):
        with socket.socket(socket.AF_UNIX) as visitor:
            visitor.connect(str(path))
            visitor.sendall(b"hello there, this is no frame")
        answer = warm.ask(path, Frame({"do": "train", "deadline": 5, "text": text}, {"x": np.ones(3, np.float32)}), 5)
        assert answer.words == {"echo": text} and answer.arrays["x"].tolist() == [1, 1, 1]
    assert warm.ask(path, Frame({"do": "stop"}), 5).words == {"stopped": True}
    thread.join(5)
    assert not thread.is_alive()
    with pytest.raises(warm.WorkerGone):
        warm.ask(path, Frame({"do": "hello"}), 1)


def test_a_worker_that_nobody_asks_ends(tmp_path: Path) -> None:
    thread = served(warm.socket_path("a", tmp_path), idle=0.1)
    thread.join(5)
    assert not thread.is_alive()


def test_a_folder_for_sockets_that_others_may_enter_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / f"fedgala-{os.getuid()}").mkdir(mode=0o777)
    (tmp_path / f"fedgala-{os.getuid()}").chmod(0o777)
    with pytest.raises(warm.WorkerGone, match="not a folder of this user alone"):
        warm.socket_path("a", tmp_path)


def test_a_round_that_passes_its_deadline_ends_the_worker() -> None:
    code = "import time; from fedgala.engines.flower.worker import Watchdog\nwith Watchdog(0.2): time.sleep(30)"
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == worker.OVERDUE and time.monotonic() - began < 25


def request(number: int, trainer: Trainer, config: RunConfig, previous: str | None, **arrays: NDArray[Any]) -> Frame:
    """A question as the server asks it."""
    model = trainer.model
    layouts = model.layouts
    words = {"run": config.hash, "round": number, "nonce": "n", "config": config.to_dict(), "transport": "float32"}
    words |= {"previous": previous, "deadline": 60}
    return Frame(words, wire.pack(model.weights, model.statistics, layouts) | arrays)


@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")  # it is meant to outlive us
def test_one_warm_worker_serves_round_after_round_until_it_hangs(folder: Path, tmp_path: Path) -> None:
    config = RunConfig.from_dict(TINY)
    trainer = Trainer(config, torch.device("cpu"))
    place = ("dark", str(folder / "dark"), tmp_path / "kept")
    path = warm.ensure(*place, idle=60)
    try:
        pids = [warm.ask(path, Frame({"do": "hello"}), 5).words["pid"]]
        answer = warm.ask(path, request(1, trainer, config, None), 60)
        assert answer.words["site"] == "dark" and answer.words["samples"] == 20, answer.words
        assert warm.ensure(*place, idle=60) == path
        pids.append(warm.ask(path, Frame({"do": "hello"}), 5).words["pid"])
        assert pids[0] == pids[1]
        os.kill(pids[0], signal.SIGSTOP)
        before, warm.HELLO = warm.HELLO, 0.5
        try:
            warm.ensure(*place, idle=60)  # the one that hangs is ended, another takes its place
        finally:
            warm.HELLO = before
        again = warm.ask(path, request(1, trainer, config, None), 60)
        assert warm.ask(path, Frame({"do": "hello"}), 5).words["pid"] != pids[0]
        assert all(np.array_equal(array, again.arrays[name]) for name, array in answer.arrays.items())
    finally:
        warm.ask(path, Frame({"do": "stop"}), 5)


def test_a_worker_that_can_not_start_says_where_to_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(warm.WorkerGone, match=r"ended with code 1: see .*worker\.log"):
        warm.ensure("a", None, tmp_path / "kept", idle=60)


def test_a_site_keeps_two_states_and_answers_an_old_question_as_before(folder: Path, tmp_path: Path) -> None:
    config = RunConfig.from_dict(TINY)
    trainer = Trainer(config, torch.device("cpu"))
    site = Site(Place("dark", str(folder / "dark"), tmp_path))
    first = {}
    for number in range(1, 5):
        first[number] = site.answer(request(number, trainer, config, None))
        kept = tmp_path / config.hash
        assert len(list(kept.glob("state-*"))) == min(number, KEPT) and len(list(kept.glob("model-*"))) == 1
    again = Site(Place("dark", str(folder / "dark"), tmp_path)).answer(request(4, trainer, config, None))
    assert all(np.array_equal(array, again.arrays[name]) for name, array in first[4].arrays.items())
    assert any(not np.array_equal(array, first[3].arrays[name]) for name, array in first[4].arrays.items())
    fresh = site.answer(request(1, trainer, config, None))  # a run that begins anew
    assert all(np.array_equal(array, fresh.arrays[name]) for name, array in first[1].arrays.items())
    assert [path.name for path in sorted(kept.glob("state-*"))] == ["state-000001.safetensors"]


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ({"run": "00000000"}, "this fedgala reads the run 00000000 as"),
        ({"config": {"seeds": 3}}, "unknown setting seeds"),
    ],
)
def test_a_site_names_what_it_can_not_do(folder: Path, tmp_path: Path, over: dict[str, object], message: str) -> None:
    config = RunConfig.from_dict(TINY)
    asked = request(1, Trainer(config, torch.device("cpu")), config, None)
    answer = Site(Place("dark", str(folder / "dark"), tmp_path)).answer(Frame({**asked.words, **over}, asked.arrays))
    assert message in answer.words["error"] and not answer.arrays


def test_a_warm_site_refuses_a_batch_that_it_can_not_fill(folder: Path, tmp_path: Path) -> None:
    site = Site(Place("dark", str(folder / "dark"), tmp_path))
    for size, wrong in ((8, False), (21, True)):
        config = RunConfig.from_dict({**TINY, "federation": {**TINY["federation"], "batch_size": size}})
        answer = site.answer(request(1, Trainer(config, torch.device("cpu")), config, None))
        assert ("fewer than federation.batch_size = 21" in answer.words.get("error", "")) is wrong


def test_a_damaged_state_is_named_and_kept(folder: Path, tmp_path: Path) -> None:
    config = RunConfig.from_dict(TINY)
    trainer = Trainer(config, torch.device("cpu"))
    site = Site(Place("dark", str(folder / "dark"), tmp_path))
    site.answer(request(1, trainer, config, None))
    state = tmp_path / config.hash / "state-000001.safetensors"
    state.write_bytes(state.read_bytes()[:-9])
    answer = site.answer(request(2, trainer, config, None))
    assert "state-000001.safetensors" in answer.words["error"] and "damaged" in answer.words["error"]
    assert state.exists()


def test_what_is_a_clients_own_does_not_travel() -> None:
    trainer = Trainer(RunConfig.from_dict(merge(TINY, {"ssl": {"method": "byol"}})), torch.device("cpu"))
    model = trainer.model
    arrays = wire.pack(model.weights, model.statistics, model.layouts)
    everything = {name.partition(".")[0] for name in model.module.state_dict()}
    assert everything == {"encoder", "projector", "predictor", "target"}
    assert {name.partition(".")[0] for name in arrays} == {"encoder", "projector"}
    back, _ = wire.unpack(arrays, model.layouts)
    assert torch.equal(back, model.weights[: model.shared.length])


@pytest.mark.parametrize(
    ("transport", "kind"), [("float32", "float32"), ("float16", "float16"), ("bfloat16", "uint16")]
)
def test_a_model_survives_the_wire(transport: str, kind: str) -> None:
    trainer = Trainer(RunConfig.from_dict(TINY), torch.device("cpu"))
    layouts = trainer.model.layouts
    arrays = wire.pack(trainer.model.weights, trainer.model.statistics, layouts, transport)
    assert (
        str(arrays["encoder.conv1.weight"].dtype) == kind and str(arrays["encoder.bn1.running_var"].dtype) == "float32"
    )
    weights, statistics = wire.unpack(arrays, layouts, transport)
    expected = trainer.model.weights.to(wire.TRANSPORTS[transport]).float()
    assert torch.equal(weights, expected) and torch.equal(statistics, trainer.model.statistics)
    assert wire.digest(arrays) == wire.digest(dict(reversed(arrays.items())))
    other = {**arrays, "encoder.conv1.weight": -arrays["encoder.conv1.weight"]}
    assert wire.digest(arrays) != wire.digest(other)
