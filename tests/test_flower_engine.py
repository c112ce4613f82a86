"""The engine of many machines without the machines: same bits as on one, and what it does when something is wrong."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import safetensors.torch
import torch

flwr = pytest.importorskip("flwr", reason="the Flower engine needs fedgala[flower]")

from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, RecordDict  # noqa: E402

from fedgala import api  # noqa: E402
from fedgala.config import RunConfig, merge  # noqa: E402
from fedgala.data.source import open_dataset  # noqa: E402
from fedgala.engines.flower import engine as engine_module  # noqa: E402
from fedgala.engines.flower.server import Log, configurations, serve  # noqa: E402
from fedgala.engines.flower.settings import DeployConfig  # noqa: E402
from fedgala.errors import ConfigError, TrainingError  # noqa: E402
from fedgala.methods import METHODS  # noqa: E402
from fedgala.observe import Observer  # noqa: E402
from fedgala.run import Run  # noqa: E402
from flower_grid import InProcessGrid, Node  # noqa: E402
from rounds import play, trainer_for  # noqa: E402

Make = Callable[..., RunConfig]
SITES = ("bright", "dark")
QUICK = DeployConfig(min_sites=2, sites=2, deadline=0.5, patience=1.0)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "POLL", 0.01)


@pytest.fixture
def grid(folder: Path, tmp_path: Path) -> InProcessGrid:
    """Two sites; each has only its own pictures."""
    found = InProcessGrid()
    for number, name in enumerate(SITES):
        own = tmp_path / "own" / name
        shutil.copytree(folder / name, own)
        found.site(number + 10, name, own, tmp_path / "kept")
    return found


def deployed(grid: InProcessGrid, config: RunConfig, settings: DeployConfig = QUICK) -> Run:
    return serve(grid, config, settings, Log(config.folder))


def weights(run: Run) -> dict[str, Any]:
    return safetensors.torch.load_file(run.encoder_path)


def same(first: Run, second: Run) -> bool:
    one, other = weights(first), weights(second)
    return one.keys() == other.keys() and all(bool((one[name] == other[name]).all()) for name in one)


def rounds(run: Run) -> list[dict[str, Any]]:
    return run.records.read("round")


def node_of(grid: InProcessGrid, name: str) -> Node:
    return next(node for node in grid.nodes.values() if node.context.node_config["site"] == name)


@pytest.mark.parametrize(
    "over",
    [
        {},
        {"federation": {"rounds": 4, "participation": 0.5}},
        {"optimizer": {"name": "sgd", "state": "reset"}, "federation": {"norm_statistics": "local"}},
        {"local": {"rule": "discard", "sign": "printed"}, "server": {"unit": "layer"}},
        {"privacy": {"clip": 0.5, "noise": 0.1}, "federation": {"rounds": 3, "norm_statistics": "local"}},
    ],
)
def test_many_machines_and_one_give_the_same_bits(grid: InProcessGrid, tiny: Make, over: dict[str, Any]) -> None:
    config = tiny(**{"federation": {"rounds": 3}} | over)
    for name in ("there", "here"):  # privacy's noise is that of one secret
        folder = replace(config, name=name).folder
        folder.mkdir(parents=True)
        (folder / "noise.key").write_text("5e" * 32)
    there = deployed(grid, replace(config, name="there"))
    here = api.train(replace(config, name="here"))
    assert same(there, here)
    assert [record["loss"] for record in rounds(there)] == [record["loss"] for record in rounds(here)]
    final = [run.records.read("evaluation")[-1]["probe"] for run in (there, here)]
    assert final[0] == final[1]
    spent = [[record.get("privacy") for record in rounds(run)] for run in (there, here)]
    assert spent[0] == spent[1] and ("privacy" in over) == any(spent[0])
    told = "".join(str(message.content) for node in grid.nodes.values() for message in node.asked)
    assert "nonce" in told and "5e5e5e" not in told and "noise.key" not in told


TRAVELLING = [name for name, method in METHODS.items() if "nothing" not in method.travels and not method.labels]


@pytest.mark.parametrize("method", TRAVELLING)
def test_every_method_gives_the_same_bits_on_many_machines(
    grid: InProcessGrid, tiny: Make, tmp_path: Path, method: str
) -> None:
    over = merge(METHODS[method].settings, {"ssl": {"queue": 12}, "model": {"predictor_hidden": 8}})
    config = tiny(**merge(over, {"federation": {"rounds": 3}, "data": {"target": None}}))
    there = deployed(grid, config)
    local = replace(config.data, path=str(tmp_path / "own"))
    clients = open_dataset(local, Observer()).domains
    trainer = trainer_for(config, clients)
    state = play(trainer, clients, 3).state
    trainer.load_(state.weights, state.statistics)
    here = trainer.model.module.get_submodule("encoder").state_dict()
    assert all(torch.equal(tensor, here[name]) for name, tensor in weights(there).items())


@pytest.mark.parametrize("method", ["supervised", "darling"])
def test_methods_that_must_know_all_pictures_are_refused(grid: InProcessGrid, tiny: Make, method: str) -> None:
    with pytest.raises(ConfigError, match=rf"'{method}' needs .* numbered alike at all sites"):
        deployed(grid, tiny(**METHODS[method].settings))


def test_the_reference_is_sent_to_those_only_that_lack_it(grid: InProcessGrid, tiny: Make, tmp_path: Path) -> None:
    run = deployed(grid, tiny(federation={"rounds": 2}))
    first, second = (record["sent"] for record in rounds(run))
    assert first == second and set(first) == set(SITES)  # the model, nothing else
    config = tiny(federation={"rounds": 3}, seed=1)
    node_of(grid, "dark").changes = [lambda reply: reply, forget(tmp_path / "kept")]
    run = deployed(grid, config)
    plain = first["dark"]
    assert [record["sent"]["bright"] for record in rounds(run)] == [plain] * 3
    assert [record["sent"]["dark"] for record in rounds(run)][:2] == [plain] * 2
    assert rounds(run)[2]["sent"]["dark"] > 2.8 * plain  # asked in vain, then with the reference
    assert "failed" not in rounds(run)[2]


def forget(kept: Path) -> Callable[[Message], Message]:
    """After this answer the site has lost its models."""

    def change(reply: Message) -> Message:
        for path in kept.rglob("sites/dark/*/model-*"):
            path.unlink()
        return reply

    return change


def words(reply: Message, **over: Any) -> Message:
    """The same answer in other words."""
    record = reply.content.config_records["words"]
    record["json"] = json.dumps({**json.loads(str(record["json"])), **over})
    return reply


def arrays(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[Message], Message]:
    """The same answer with other arrays."""

    def changed(reply: Message) -> Message:
        held = {name: array.numpy() for name, array in reply.content.array_records["arrays"].items()}
        new = RecordDict(dict(reply.content))
        new["arrays"] = ArrayRecord({name: Array(np.asarray(array)) for name, array in change(held).items()})
        reply.content = new
        return reply

    return changed


def instead(reply: Message, **what: Any) -> Message:
    """Another answer to the same question."""
    make: Any = Message  # the way to keep the metadata is not public
    return cast(Message, make(metadata=reply.metadata, **what))


FIRST = "encoder.conv1.weight"
WRONG: dict[str, tuple[Callable[[Message], Message | None], str]] = {
    "silent": (lambda reply: None, "no answer in 0 s"),
    "crashed": (lambda reply: instead(reply, error=Error(8, "trace\nboom")), "Flower error 8: boom"),
    "nan": (
        arrays(lambda held: held | {FIRST: held[FIRST] * np.float32("nan")}),
        "not finite",
    ),
    "shape": (arrays(lambda held: held | {FIRST: held[FIRST][:1]}), f"{FIRST} has shape (1,"),
    "type": (arrays(lambda held: held | {FIRST: held[FIRST].astype("float64")}), f"{FIRST} is of type float64"),
    "missing": (arrays(lambda held: {n: a for n, a in held.items() if n != FIRST}), f"{FIRST} first"),
    "unknown": (arrays(lambda held: held | {"extra": held[FIRST]}), "1 arrays missing or unknown, extra first"),
    "oversized": (arrays(lambda held: held | {"extra": np.zeros(10**6, "float32")}), "bytes of arrays, at most"),
    "another site": (lambda reply: words(reply, site="bright"), "answers another question: site 'bright'"),
    "stale": (lambda reply: words(reply, round=1), "answers another question: round 1 instead of 2"),
    "another run": (lambda reply: words(reply, run="x"), "answers another question: run 'x'"),
    "replayed": (lambda reply: words(reply, nonce="x"), "answers another question: nonce 'x'"),
    "samples": (lambda reply: words(reply, samples=-3), "-3 as its number of samples"),
    "metrics": (lambda reply: words(reply, metrics={"loss": "low"}), "metrics that are not all numbers"),
    "its own words": (lambda reply: words(reply, error="no pictures here"), "no pictures here"),
    "empty": (lambda reply: instead(reply, content=RecordDict({"x": ConfigRecord()})), "not an answer of ours"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_answer_is_named_and_the_round_goes_on(grid: InProcessGrid, tiny: Make, case: str) -> None:
    change, reason = WRONG[case]
    node_of(grid, "dark").changes = [lambda reply: reply, change]
    settings = replace(QUICK, min_sites=1)
    run = deployed(grid, tiny(federation={"rounds": 3}), settings)
    records = rounds(run)
    assert [sorted(record["clients"]) for record in records] == [["bright", "dark"], ["bright"], ["bright", "dark"]]
    assert reason in records[1]["failed"]["dark"]
    assert "failed" not in records[0] and "failed" not in records[2]


def test_below_the_quorum_a_round_is_asked_again_and_ends_with_the_same_bits(grid: InProcessGrid, tiny: Make) -> None:
    config = tiny(federation={"rounds": 3})
    whole = api.train(replace(config, name="whole"))
    node_of(grid, "dark").changes = [lambda reply: reply, lambda reply: None]
    run = deployed(grid, replace(config, name="there"), replace(QUICK, patience=5.0))
    assert same(run, whole) and [len(record["clients"]) for record in rounds(run)] == [2, 2, 2]


def test_a_quorum_lost_for_too_long_stops_with_a_reason_and_the_same_command_goes_on(
    grid: InProcessGrid, tiny: Make
) -> None:
    config = tiny(federation={"rounds": 4})
    whole = api.train(replace(config, name="whole"))
    there = replace(config, name="there")
    node_of(grid, "dark").changes = [lambda reply: reply, lambda reply: reply, *[lambda reply: None] * 50]
    with pytest.raises(TrainingError, match=r"round 3: 1 of at least 2 sites .*dark: no answer.*goes on"):
        deployed(grid, there)
    assert len(rounds(Run(there, there.folder))) == 2
    node_of(grid, "dark").changes = []
    assert same(deployed(grid, there), whole)


def test_sites_that_do_not_come_stop_the_run_by_name(grid: InProcessGrid, tiny: Make) -> None:
    node_of(grid, "dark").online = False
    with pytest.raises(TrainingError, match=r"1 of 2 sites are here \(bright\) after"):
        deployed(grid, tiny(), replace(QUICK, patience=0.05))


def test_sites_that_do_not_come_are_missed_for_a_while_where_the_others_are_enough(
    grid: InProcessGrid, tiny: Make
) -> None:
    node_of(grid, "dark").online = False
    config = tiny(federation={"rounds": 1})
    run = deployed(grid, config, replace(QUICK, min_sites=1, sites=2, patience=0.05))
    assert list(rounds(run)[0]["clients"]) == ["bright"]
    assert "1 of 2 sites are here (bright) after 0 s: going on" in (config.folder / "log.jsonl").read_text()


def test_a_site_that_joins_late_takes_part(grid: InProcessGrid, tiny: Make, folder: Path, tmp_path: Path) -> None:
    late = grid.site(99, "late", folder / "plain", tmp_path / "kept")
    late.online = False

    def arrive(reply: Message) -> Message:
        late.online = True
        return reply

    node_of(grid, "bright").changes = [arrive]
    run = deployed(grid, tiny(federation={"rounds": 3}))
    assert [sorted(record["clients"]) for record in rounds(run)] == [
        ["bright", "dark"],
        *[["bright", "dark", "late"]] * 2,
    ]
    assert rounds(run)[1]["sent"]["late"] > 1.8 * rounds(run)[1]["sent"]["dark"]  # with the reference


def test_two_nodes_of_one_name_are_one_site(grid: InProcessGrid, tiny: Make, folder: Path, tmp_path: Path) -> None:
    grid.site(99, "dark", folder / "plain", tmp_path / "kept2")
    config = tiny()
    run = deployed(grid, config)
    assert sorted(rounds(run)[0]["clients"]) == ["bright", "dark"]
    assert "two nodes call themselves 'dark'" in (config.folder / "log.jsonl").read_text()


def test_a_site_without_its_name_does_not_stop_the_others(grid: InProcessGrid, tiny: Make) -> None:
    grid.add(99)
    config = tiny()
    deployed(grid, config)
    assert (
        "does not say who it is: Flower error 2: ValueError: start this node"
        in (config.folder / "log.jsonl").read_text()
    )


def test_a_site_says_its_own_mistakes(grid: InProcessGrid, tiny: Make, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "own" / "dark")
    with pytest.raises(TrainingError, match="dark: there is no folder"):
        deployed(grid, tiny(), replace(QUICK, patience=0.05))


@pytest.mark.parametrize(("transport", "share"), [("float16", 0.5), ("bfloat16", 0.5)])
def test_half_the_bytes_nearly_the_same_model(grid: InProcessGrid, tiny: Make, transport: str, share: float) -> None:
    config = tiny(federation={"rounds": 2})
    whole = deployed(grid, replace(config, name="whole"))
    half = deployed(grid, replace(config, name="half"), replace(QUICK, transport=transport))
    assert rounds(half)[0]["sent"]["dark"] < (share + 0.05) * rounds(whole)[0]["sent"]["dark"]
    one, other = weights(whole), weights(half)
    far = [float((one[name] - other[name]).norm() / one[name].norm()) for name in one if "conv" in name]
    assert 0 < max(far) < 0.2


def test_an_update_far_longer_than_the_others_is_refused(
    grid: InProcessGrid, tiny: Make, folder: Path, tmp_path: Path
) -> None:
    grid.site(99, "late", folder / "plain", tmp_path / "kept")
    node_of(grid, "late").changes = [arrays(lambda held: {n: a * np.float32(1000) for n, a in held.items()})]
    run = deployed(grid, tiny(federation={"rounds": 1}), replace(QUICK, sites=3))
    assert "an update of length" in rounds(run)[0]["failed"]["late"]
    assert sorted(rounds(run)[0]["clients"]) == ["bright", "dark"]


def test_a_simulated_node_is_the_client_of_its_number(tiny: Make, tmp_path: Path) -> None:
    grid = InProcessGrid()
    for number in range(2):
        grid.add(number + 1, **{"partition-id": number, "num-partitions": 2, "state": str(tmp_path / "kept")})
    config = tiny(federation={"rounds": 2})
    assert same(deployed(grid, replace(config, name="there")), api.train(replace(config, name="here")))


def test_under_privacy_length_is_judged_by_the_clip_alone(grid: InProcessGrid, tiny: Make, tmp_path: Path) -> None:
    config = tiny(federation={"rounds": 2}, privacy={"clip": 0.5, "noise": 0.1})
    longer = arrays(lambda held: {n: a * np.float32(1.01) if a.ndim else a for n, a in held.items()})
    node_of(grid, "dark").changes = [lambda reply: reply, longer]
    run = deployed(grid, config, replace(QUICK, min_sites=1, norm_bound=1e-9))
    assert "failed" not in rounds(run)[0]
    assert "an update of length 0.505, more than 0.5" in rounds(run)[1]["failed"]["dark"]
    with pytest.raises(ConfigError, match="deploy.transport = 'bfloat16' with privacy.clip: rounding would lengthen"):
        deployed(grid, config, replace(QUICK, transport="bfloat16"))


ORPHAN = """
import subprocess, sys
child = "import time; from fedgala.engines.flower.server import end_with_parent as it; it(); print(1, flush=True)"
child += "; time.sleep(60)"
process = subprocess.Popen([sys.executable, "-c", child], stdout=subprocess.PIPE)
process.stdout.readline()
print(process.pid, flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="processes have no parents there")
def test_a_server_app_whose_parent_has_ended_ends_too() -> None:
    done = subprocess.run([sys.executable, "-c", ORPHAN], capture_output=True, text=True, timeout=120, check=True)
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            os.kill(int(done.stdout), 0)
        except ProcessLookupError:
            return
        time.sleep(0.2)
    os.kill(int(done.stdout), 9)
    raise AssertionError("it lives on")


def test_the_configuration_of_a_run_in_flowers_words() -> None:
    given = {"preset": "cpu", "federation.rounds": 3, "data.target": "", "views.scale": "[0.2, 1.0]", "deploy.sites": 3}
    config, settings = configurations({**given, "log": '["mlflow"]'})
    assert config.log == ("mlflow",)
    assert config.federation.rounds == 3 and config.views.scale == (0.2, 1.0) and config.model.encoder == "small"
    assert config.data.target is None and settings.sites == 3
    again = configurations({"config": json.dumps(config.to_dict()), "deploy": json.dumps(settings.to_dict())})
    assert again == (config, settings)
    with pytest.raises(ConfigError, match="did you mean cpu"):
        configurations({"preset": "cpus"})
    with pytest.raises(ConfigError, match="unknown setting federation.round"):
        configurations({"federation.round": 3})


@pytest.mark.filterwarnings("ignore")  # what TensorBoard says about its own dependencies
def test_the_server_of_a_deployment_logs_to_services_too(grid: InProcessGrid, tiny: Make) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run = deployed(grid, tiny(log=["tensorboard"]))
    events = accumulator.EventAccumulator(str(run.folder / "tensorboard"))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("loss")] == [
        (record["round"], pytest.approx(record["loss"])) for record in rounds(run)
    ]
