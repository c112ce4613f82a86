"""TensorBoard, W&B and MLflow, each read back by its own means: what was recorded is there, once."""

import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import pytest

from fedgala import api, services
from fedgala.config import RunConfig
from fedgala.errors import ConfigError
from fedgala.observe import Observer, Several
from fedgala.records import Record
from fedgala.run import Run
from fedgala.services import logged, numbers

Make = Callable[..., RunConfig]
Points = dict[str, list[tuple[int, float]]]  # by curve: round and value, in the order of the service
ALL = ("tensorboard", "wandb", "mlflow")

pytestmark = pytest.mark.filterwarnings("ignore")  # what these libraries say about each other and themselves


def read_tensorboard(folder: Path) -> Points:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return {name: [(e.step, e.value) for e in events.Scalars(name)] for name in events.Tags()["scalars"]}


def read_wandb(folder: Path) -> Points:
    """From the offline runs' own files, in the order in which they would be synchronised."""
    messages = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    points: Points = {}
    steps = []
    for path in sorted((folder / "wandb").glob("offline-run-*/*.wandb")):
        for data in pieces(path.read_bytes()):
            message = messages.Record.FromString(data)
            if message.WhichOneof("record_type") == "history":
                values = {
                    "/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in message.history.item
                }
                steps.append(message.history.step.num)
                for name, value in values.items():
                    if name != "round" and not name.startswith("_"):
                        points.setdefault(name, []).append((values["round"], value))
    assert steps == sorted(set(steps)), "a step twice: W&B drops what comes second"
    return points


def pieces(data: bytes) -> Iterator[bytes]:
    """The records of a file in LevelDB's log format: blocks of 32 KiB, records cut where a block ends."""
    assert data.startswith(b":W&B")
    place, whole = 7, b""
    while place + 7 <= len(data):
        left = 32768 - place % 32768
        if left < 7:
            place += left
            continue
        _, size, kind = struct.unpack_from("<IHB", data, place)
        whole += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # the whole, or the end
            yield whole
            whole = b""


def read_mlflow(folder: Path) -> Points:
    mlflow = pytest.importorskip("mlflow")
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("fedgala")
    found = client.search_runs([experiment.experiment_id])
    assert len(found) == 1, "a resumed run is the same run"
    history = {name: client.get_metric_history(found[0].info.run_id, name) for name in found[0].data.metrics}
    return {name: [(point.step, point.value) for point in points] for name, points in history.items()}


READERS = {"tensorboard": read_tensorboard, "wandb": read_wandb, "mlflow": read_mlflow}


@pytest.fixture(autouse=True)
def _nobody_calls_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in {
        "WANDB_MODE": "offline", "WANDB_CONFIG_DIR": str(tmp_path), "WANDB_CACHE_DIR": str(tmp_path),
        "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db", "MLFLOW_DISABLE_TELEMETRY": "true",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)


@pytest.fixture(params=ALL)
def service(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    pytest.importorskip(services.SERVICES[name][0], reason=f"needs fedgala[{name}]")
    return name


def expected(records: list[Record]) -> Points:
    points: Points = {}
    for record in records:
        for name, value in numbers(record).items():
            points.setdefault(name, []).append((record["round"], value))
    return points


def same(found: Points, wanted: Points) -> None:
    assert found.keys() == wanted.keys()
    for name, points in wanted.items():
        assert [step for step, _ in found[name]] == [step for step, _ in points], name
        assert [value for _, value in found[name]] == pytest.approx([value for _, value in points], rel=1e-6), name


def a_round(number: int, loss: float) -> Record:
    return {"kind": "round", "round": number, "loss": loss, "clients": {"a b": {"loss": loss + 1, "conflicts": [0.5]}}}


def test_numbers_have_their_path_and_splits_their_mean_and_spread() -> None:
    assert numbers(a_round(3, 0.5)) == {"loss": 0.5, "clients/a b/loss": 1.5}
    record = {
        "kind": "evaluation",
        "round": 2,
        "knn": 0.5,
        "probe": {"encoder": {"0.1": [0.2, 0.4]}},
        "rejected": ["a"],
    }
    assert numbers(record) == {
        "knn": 0.5,
        "probe/encoder/0.1": fmean([0.2, 0.4]),
        "probe/encoder/0.1/spread": pstdev([0.2, 0.4]),
    }


def test_what_a_run_records_is_in_the_service(service: str, tiny: Make) -> None:
    run = api.train(tiny(log=[service]))
    points = READERS[service](run.folder)
    same(points, expected(run.records.read()))
    assert len(points["loss"]) == 2 and "clients/dark/weight" in points and "probe/encoder/0.1/spread" in points


def test_a_resumed_run_is_one_run_without_a_point_twice(service: str, tiny: Make) -> None:
    config = tiny(log=[service])
    run = Run(config, config.folder)
    run.folder.mkdir(parents=True)
    records = [a_round(number, 1 / number) for number in range(1, 6)]
    with pytest.raises(KeyboardInterrupt), logged(run, Observer()) as watcher:
        for record in records[:3]:
            run.records.append(record)
            watcher.record(record)
        raise KeyboardInterrupt
    run.records.rewind(2)  # round 3 was sent, but after the last checkpoint: it is played again
    with logged(run, Observer()) as watcher:
        for record in records[2:]:
            run.records.append(record)
            watcher.record(record)
    same(READERS[service](run.folder), expected(records))


def test_a_service_named_after_the_run_gets_all_of_it(service: str, tiny: Make) -> None:
    run = api.train(tiny())
    for _ in range(2):  # and nothing a second time
        api.train(tiny(log=[service]))
    same(READERS[service](run.folder), expected(run.records.read()))


def test_log_is_no_part_of_what_a_run_is(tiny: Make) -> None:
    assert tiny(log=["mlflow", "wandb"]).hash == tiny().hash
    with pytest.raises(ConfigError, match="log = 'tensorbord': did you mean tensorboard"):
        tiny(log=["tensorbord"])


class Broken:
    identity = "1"

    def __init__(self, run: Run, identity: str):
        self.sent: list[int] = []

    def send(self, values: Any, round: int, number: int) -> None:
        if round == 1:
            raise ConnectionError("no route to host\nand more")

    def close(self, finished: bool) -> None:
        raise AssertionError("it was given up")


def test_a_service_that_fails_costs_the_run_nothing(tiny: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(services.SERVICES, "wandb", ("json", Broken))
    notes: list[str] = []

    class Watch(Observer):
        def note(self, line: str) -> None:
            notes.append(line)

    run = api.train(tiny(log=["wandb"]), Watch())
    assert run.finished and notes == ["wandb: no route to host; the same command again sends what is missing"]
    state = json.loads((run.folder / services.STATE).read_text())["wandb"]
    assert state["sent"] == {"evaluation": 0} and state["count"] == 1


def test_without_the_library_one_line_says_what_to_install(tiny: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(services.SERVICES, "mlflow", ("no_such_module", Broken))
    with pytest.raises(ConfigError, match=r"log = mlflow: not installed here; pip install 'fedgala\[mlflow\]'"):
        api.train(tiny(log=["mlflow"]))


def test_a_service_that_does_not_let_us_in_is_a_mistake_to_put_right(
    tiny: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(run: Run, identity: str) -> Any:
        raise PermissionError("no key\ndetails")

    monkeypatch.setitem(services.SERVICES, "wandb", ("json", closed))
    with pytest.raises(ConfigError, match=r"^log = wandb: no key$"):
        api.train(tiny(log=["wandb"]))


def test_several_observers_hear_everything_in_order(tiny: Make, tmp_path: Path) -> None:
    heard: list[tuple[str, str, object]] = []

    class Ear(Observer):
        def __init__(self, name: str):
            self.name = name

        def __getattribute__(self, name: str) -> Any:
            if name in ("decoding", "working", "begin", "step", "record", "note"):
                return lambda *given: heard.append((self.name, name, given))
            return super().__getattribute__(name)

    both = Several(Ear("first"), Ear("second"))
    calls: list[tuple[str, tuple[Any, ...]]] = [
        ("decoding", (1, 2)), ("working", ("x",)), ("begin", (tiny(), tmp_path, {"a": 1})),
        ("step", ()), ("record", (a_round(1, 1.0),)), ("note", ("line",)),
    ]  # fmt: skip
    for name, given in calls:
        getattr(both, name)(*given)
    assert heard == [(ear, name, given) for name, given in calls for ear in ("first", "second")]
