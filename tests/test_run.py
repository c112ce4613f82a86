"""A run survives everything: kills at any moment, Ctrl-C, full disks, damaged files."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from fedgala import api
from fedgala.client import Trainer
from fedgala.config import RunConfig
from fedgala.errors import CheckpointError, ConfigError, DataError, TrainingError
from fedgala.export import load_encoder
from fedgala.observe import Observer
from fedgala.records import Record
from fedgala.run import Run
from fedgala.storage import load_tensors
from fedgala.toml import to_toml

Make = Callable[..., RunConfig]


class Stop(Observer):
    """Interrupts at a step or at a record."""

    def __init__(self, step: int = -1, record: int = -1):
        self.steps, self.records, self.at_step, self.at_record = 0, 0, step, record

    def step(self) -> None:
        self.steps += 1
        if self.steps == self.at_step:
            raise KeyboardInterrupt

    def record(self, record: Record) -> None:
        self.records += 1
        if self.records == self.at_record:
            raise KeyboardInterrupt


def stable(run: Run) -> list[Record]:
    """Records without what is measured of the machine."""
    measured = ("seconds", "peak_memory")
    return [{key: value for key, value in record.items() if key not in measured} for record in run.records.read()]


def same_result(a: Run, b: Run) -> bool:
    first, second = (safetensors.torch.load_file(run.encoder_path) for run in (a, b))
    return first.keys() == second.keys() and all(torch.equal(first[k], second[k]) for k in first)


def test_a_run_leaves_everything_it_promises(tiny: Make) -> None:
    run = api.train(tiny(probe={"every": 1}))
    kinds = [(record["kind"], record["round"]) for record in run.records.read()]
    assert kinds == [("evaluation", 0), ("round", 1), ("evaluation", 1), ("round", 2), ("evaluation", 2)]
    last = run.records.read("round")[-1]
    assert set(last["clients"]) == {"bright", "dark"} and len(last["cosines"]) == 2
    assert sum(client["weight"] for client in last["clients"].values()) == pytest.approx(1)
    assert 0 <= last["conflict"] <= 1
    assert set(run.records.read("evaluation")[-1]) == {"kind", "round", "monitor", "knn", "probe", "transfer"}
    names = {str(path.relative_to(run.folder)) for path in run.folder.rglob("*") if path.is_file()}
    files = {"config.toml", "records.jsonl", "checkpoint.safetensors", "encoder.safetensors"}
    assert names == files | {".lock", "plots/training.png", "plots/views.png", "plots/clients.png"}
    assert run.encoder(torch.rand(2, 3, 16, 16)).shape == (2, run.encoder.features)


def test_plots_take_any_name_as_it_is(tiny: Make, folder: Path, recwarn: pytest.WarningsRecorder) -> None:
    for old, new in (("bright", "$\\frac$"), ("dark", "北京🙂")):
        (folder / old).rename(folder / new)
    assert (api.train(tiny(name="$x^$")).folder / "plots" / "views.png").exists()
    assert not [str(it.message) for it in recwarn if "Glyph" in str(it.message)]


def test_without_labels_and_target_training_has_its_monitor(tiny: Make, folder: Path) -> None:
    for domain in folder.iterdir():
        for number, picture in enumerate(sorted(domain.rglob("*.png"))):
            picture.rename(domain / f"{number}.png")
        for kind in ("cat", "dog"):
            (domain / kind).rmdir()
    run = api.train(tiny(data={"target": None}))
    final = run.records.read("evaluation")[-1]
    assert set(final) == {"kind", "round", "monitor"}
    assert set(final["monitor"]) == {"alignment", "uniformity", "effective_rank"}
    assert set(run.records.read("round")[-1]["clients"]) == {"bright", "dark", "plain"}


def test_the_same_configuration_gives_the_same_bits_and_another_seed_does_not(tiny: Make) -> None:
    first, again, other = api.train(tiny()), api.train(replace(tiny(), name="again")), api.train(tiny(seed=1))
    assert first.folder.name.split("-")[-1] == again.folder.name.split("-")[-1] != other.folder.name.split("-")[-1]
    assert stable(first) == stable(again) and same_result(first, again)
    assert not same_result(first, other)


def test_a_finished_run_is_not_trained_again(tiny: Make) -> None:
    first = api.train(tiny())
    stamp = first.encoder_path.stat().st_mtime_ns
    watcher = Stop(step=1, record=1)
    assert api.train(tiny(), watcher).encoder_path.stat().st_mtime_ns == stamp


@pytest.mark.parametrize("stop", [{"step": 1}, {"step": 5}, {"step": 7}, {"record": 1}, {"record": 3}, {"record": 5}])
def test_ctrl_c_anywhere_then_the_same_command_gives_the_same_bits(tiny: Make, stop: dict[str, int]) -> None:
    config = tiny(probe={"every": 1}, federation={"rounds": 3})
    whole = api.train(replace(config, name="whole"))
    with pytest.raises(KeyboardInterrupt):
        api.train(config, Stop(**stop))
    assert not Run(config, config.folder).finished
    run = api.train(config)
    assert stable(run) == stable(whole) and same_result(run, whole)


COMMAND = "import sys; from fedgala.cli import main; main()"


def start(config: RunConfig, tmp_path: Path, **environment: str) -> "subprocess.Popen[str]":
    file = tmp_path / "config.toml"
    file.write_text(to_toml(config))
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, "train", "--config", str(file)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background job ignores it
    )  # fmt: skip


def test_kill_9_at_random_moments_then_the_same_command_gives_the_same_bits(tiny: Make, tmp_path: Path) -> None:
    config = tiny(federation={"rounds": 12, "participation": 0.5}, optimizer={"schedule": "cosine"})
    whole = api.train(replace(config, name="whole"))
    run, kills, seen = Run(config, config.folder), 0, set()
    for attempt in range(8):
        process = start(config, tmp_path)
        goal = (0, 1, 2, 4, 6, 8, 10, 99)[attempt]
        while process.poll() is None and len(run.records.read("round")) < goal:
            time.sleep(0.005)
        time.sleep(random.Random(attempt).uniform(0, 0.1))
        if process.poll() is None and goal < 99:
            process.kill()
            kills += 1
        process.communicate()
        seen.add(len(run.records.read("round")))
        if run.finished:
            break
    assert run.finished and kills >= 4 and len(seen) >= 4
    assert stable(run) == stable(whole) and same_result(run, whole)
    assert not list(run.folder.glob("*.tmp"))


def test_ctrl_c_on_the_command_line_says_how_to_go_on(tiny: Make, tmp_path: Path) -> None:
    config = tiny(federation={"rounds": 400})
    process, run = start(config, tmp_path), Run(config, config.folder)
    while process.poll() is None and len(run.records.read("round")) < 2:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "stopped" in errors.splitlines()[-1] and "goes on from there" in errors.splitlines()[-1]
    assert "Traceback" not in errors and run.checkpoint_path.exists()


def test_equal_runs_leave_equal_files_that_others_may_read(tiny: Make) -> None:
    first, second = (api.train(replace(tiny(), name=name)) for name in "ab")
    assert first.encoder_path.read_bytes() == second.encoder_path.read_bytes()
    os.umask(mask := os.umask(0))
    assert first.encoder_path.stat().st_mode & 0o777 == 0o666 & ~mask


def test_two_processes_do_not_share_a_run(tiny: Make) -> None:
    config = tiny()
    with Run(config, config.folder).opened(), pytest.raises(CheckpointError, match="in use by another process"):
        api.train(config)


def interrupted(config: RunConfig) -> Run:
    with pytest.raises(KeyboardInterrupt):
        api.train(config, Stop(record=3))
    return Run(config, config.folder)


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "text"])
def test_a_damaged_checkpoint_is_refused_by_name_and_not_deleted(tiny: Make, damage: str) -> None:
    run = interrupted(tiny())
    content = bytearray(run.checkpoint_path.read_bytes())
    if damage == "flipped":
        content[-100] ^= 1
    kinds = {"truncated": bytes(content[:-50]), "flipped": bytes(content), "empty": b"", "text": b"not a checkpoint"}
    broken = kinds[damage]
    run.checkpoint_path.write_bytes(broken)
    with pytest.raises(CheckpointError, match=r"checkpoint\.safetensors.*damaged"):
        api.train(run.config)
    assert run.checkpoint_path.read_bytes() == broken


def rewrite_metadata(path: Path, change: Callable[[Any], Any]) -> None:
    """Change what a safetensors file says of itself, and nothing else."""
    content = path.read_bytes()
    size = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:size])
    header["__metadata__"]["fedgala"] = json.dumps(change(json.loads(header["__metadata__"]["fedgala"])))
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[size:])


@pytest.mark.parametrize("change", [{"round": "0"}, {"round": "-1"}, {"run": "0"}, {"checksum": []}])
def test_a_checkpoint_whose_words_were_changed_is_refused(tiny: Make, change: dict[str, Any]) -> None:
    run = interrupted(tiny())
    rewrite_metadata(run.checkpoint_path, lambda words: {**words, **change})
    with pytest.raises(CheckpointError, match=r"checkpoint\.safetensors is damaged: its checksum does not match"):
        api.train(run.config)


def test_an_encoder_whose_words_were_changed_is_refused(tiny: Make) -> None:
    path = api.train(tiny()).encoder_path
    rewrite_metadata(path, lambda words: {**words, "crop": "99"})
    with pytest.raises(CheckpointError, match="is damaged: its checksum does not match"):
        load_encoder(path)
    rewrite_metadata(path, lambda words: 3)
    with pytest.raises(CheckpointError, match="was not written by fedgala"):
        load_encoder(path)


def test_damaged_records_are_refused_by_line(tiny: Make) -> None:
    run = interrupted(tiny())
    lines = run.records.path.read_text().splitlines()
    run.records.path.write_text("\n".join([lines[0][:20], *lines[1:]]) + "\n")
    with pytest.raises(CheckpointError, match=r"records\.jsonl, line 1 is damaged"):
        api.train(run.config)


def test_records_that_lack_a_round_are_refused(tiny: Make) -> None:
    run = interrupted(tiny(federation={"rounds": 4}))
    lines = run.records.path.read_text().splitlines()
    kept = [line for line in lines if '"round": 1,' not in line]
    assert len(kept) < len(lines)
    run.records.path.write_text("\n".join(kept) + "\n")
    with pytest.raises(CheckpointError, match=r"records\.jsonl lacks 1 of the \d rounds that are done \(round 1 first"):
        api.train(run.config)


def test_other_data_under_the_same_run_is_refused(tiny: Make, folder: Path) -> None:
    run = interrupted(tiny())
    (folder / "dark" / "cat" / "0.png").unlink()
    with pytest.raises(CheckpointError, match="belongs to another data"):
        api.train(run.config)


def test_a_full_disk_keeps_the_old_checkpoint(tiny: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    run = interrupted(tiny(federation={"rounds": 4}))
    before = run.checkpoint_path.read_bytes()

    def full(tensors: Any, path: Path, metadata: Any) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("safetensors.torch.save_file", full)
        with pytest.raises(CheckpointError, match="No space left on device; what was saved before is intact"):
            api.train(run.config)
    assert run.checkpoint_path.read_bytes() == before and not list(run.folder.glob(".*.tmp"))
    assert same_result(api.train(run.config), api.train(replace(run.config, name="whole")))


def test_nan_stops_by_name_and_keeps_the_last_good_checkpoint(tiny: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny(federation={"rounds": 4})
    train_client = Trainer.train_client

    def poisoned(trainer: Any, broadcast: Any, *rest: Any) -> Any:
        bad = broadcast.round == 3
        weights = torch.full_like(broadcast.weights, float("nan")) if bad else broadcast.weights
        return train_client(trainer, replace(broadcast, weights=weights), *rest)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "train_client", poisoned)
        with pytest.raises(TrainingError, match="nan in round 3, client bright, step 1 of 2; the last good checkpoint"):
            api.train(config)
    assert load_tensors(Run(config, config.folder).checkpoint_path)[1]["round"] == "2"
    assert same_result(api.train(config), api.train(replace(config, name="whole")))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": {"target": "plane"}}, "no such domain in pictures; did you mean plain"),
        ({"federation": {"batch_size": 21}}, "20 images, fewer than federation.batch_size = 21; use --batch-size 20"),
        ({"data": {"path": "/no/such/folder"}}, "/no/such/folder"),
    ],
)
def test_mistakes_about_data_are_one_clear_line(tiny: Make, change: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message) as error:
        api.train(tiny(**change))
    assert "\n" not in str(error.value)


def test_one_domain_that_is_the_target_leaves_nothing_to_train_on(tiny: Make, folder: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone"
    alone.mkdir()
    (folder / "plain").rename(alone / "plain")
    with pytest.raises(DataError, match="nothing is left to train on"):
        api.train(tiny(data={"path": str(alone)}))


@pytest.mark.parametrize("device", ["tpu", "cuda:x", "cuda:99", "cpu:"])
def test_a_device_that_is_not_here_is_refused(tiny: Make, device: str) -> None:
    if device == "cpu:":
        assert api.choose_device("cpu").type == "cpu"
        return
    with pytest.raises(ConfigError, match="engine.device"):
        api.train(tiny(engine={"device": device}))


def test_the_encoder_file_stands_alone(tiny: Make) -> None:
    run = api.train(tiny())
    encoder = load_encoder(run.encoder_path)
    assert not encoder.training and encoder.crop == 16
    names = set(safetensors.torch.load_file(run.encoder_path))
    torchvision = {"conv1.weight", "bn1.running_var", "layer1.0.conv1.weight", "layer4.0.downsample.1.weight"}
    assert torchvision <= names and not any(name.startswith(("encoder.", "projector.")) for name in names)
    with pytest.raises(CheckpointError, match="holds no fedgala encoder"):
        load_encoder(run.checkpoint_path)


def test_checkpoints_take_a_small_share_of_the_time(tiny: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedgala import checkpoint

    save, saved = checkpoint.save, []

    def slow(*arguments: Any) -> None:
        save(*arguments)
        saved.append(arguments[1].state.round)
        time.sleep(0.5)

    monkeypatch.setattr(checkpoint, "save", slow)
    api.train(tiny(federation={"rounds": 10}))
    assert saved[0] == 1 and saved[-1] == 10 and len(saved) < 8


def test_participation_takes_a_share_of_the_clients(tiny: Make) -> None:
    run = api.train(tiny(federation={"participation": 0.5, "rounds": 6}))
    chosen = [tuple(record["clients"]) for record in run.records.read("round")]
    assert {len(names) for names in chosen} == {1} and len(set(chosen)) == 2
