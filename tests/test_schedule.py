"""Many runs in one folder: claimed, carried out once, stopped in time, killed at any moment, reported if they fail."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fedgala import api
from fedgala.cli.app import run as fedgala
from fedgala.cli.study import duration
from fedgala.config import RunConfig
from fedgala.errors import CheckpointError, ConfigError
from fedgala.studies import claims
from fedgala.studies.claims import Busy, claimed
from fedgala.studies.schedule import NEVER, Summary, carry_out, places
from fedgala.studies.watch import Watcher, spoken
from fedgala.studies.work import Task

Make = Callable[..., RunConfig]
HOLD = """
import sys, time
from pathlib import Path
from fedgala.studies.claims import claimed
with claimed(Path(sys.argv[1]), settle=0):
    print("held", flush=True)
    time.sleep(60)
"""


def run(tasks: list[Task], workers: int = 2, deadline: float = NEVER) -> tuple[Summary, list[str]]:
    lines: list[str] = []
    return carry_out(tasks, ["cpu"] * workers, 1, Watcher(lines.append), deadline), lines


def bits(task: Task) -> bytes:
    return task.run.encoder_path.read_bytes()


def foreign(path: Path, age: float) -> None:
    """A claim as another machine left it so many seconds ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": "elsewhere", "process": 1, "token": "theirs"}))
    os.utime(path, (time.time() - age, time.time() - age))


def test_a_claim_keeps_others_out_and_a_dead_holder_does_not(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout and holder.stdout.readline() == b"held\n"
        with pytest.raises(Busy, match="in use by another process"), claimed(tmp_path, settle=0):
            pass
        holder.kill()
        holder.wait()
        with claimed(tmp_path, settle=0) as claim:
            assert claim.ours()
    assert claims.read(tmp_path / claims.NAME) == {}


def test_another_machines_claim_holds_while_it_is_fresh(tmp_path: Path) -> None:
    path = tmp_path / claims.NAME
    foreign(path, age=100)
    with pytest.raises(Busy, match="on another machine"), claimed(tmp_path, settle=0):
        pass
    foreign(path, age=130)
    with claimed(tmp_path, settle=0) as claim:
        assert claim.ours()


def test_where_a_disk_keeps_no_locks_a_living_holder_is_respected(tmp_path: Path) -> None:
    path = tmp_path / claims.NAME
    for process, busy in ((os.getppid(), True), (2**22 + 1, False)):
        path.write_text(json.dumps({"machine": claims.machine(), "process": process, "token": "theirs"}))
        assert claims.held(path, stale=100) == busy
    os.utime(path, (0, 0))
    assert not claims.held(path, stale=100)


def test_of_two_that_take_over_at_once_one_leaves(tmp_path: Path) -> None:
    path = tmp_path / claims.NAME
    threading.Timer(0.1, foreign, (path, 0)).start()
    with pytest.raises(Busy, match="at the same moment"), claimed(tmp_path, settle=0.6):
        pass
    assert claims.read(path)["token"] == "theirs"


def test_a_holder_that_slept_finds_its_claim_lost(tmp_path: Path) -> None:
    with claimed(tmp_path, beat=0.05, settle=0) as claim:
        before = claim.path.stat().st_mtime_ns
        time.sleep(0.2)
        assert claim.path.stat().st_mtime_ns > before and not claim.lost.is_set()
        foreign(claim.path, age=0)
        assert claim.lost.wait(2)
    assert claims.read(tmp_path / claims.NAME)["token"] == "theirs"


def test_runs_are_carried_out_once_and_as_if_alone(tiny: Make) -> None:
    tasks = [Task(tiny(seed=seed)) for seed in (0, 1, 0)]
    summary, lines = run(tasks)
    assert len(summary.done) == 2 and not summary.failed and not summary.left
    assert sum(": done;" in line for line in lines) == 2
    before = {task.config.folder: task.run.encoder_path.stat().st_mtime_ns for task in tasks}
    again, lines = run(tasks)
    assert len(again.done) == 2 and not lines
    assert before == {task.config.folder: task.run.encoder_path.stat().st_mtime_ns for task in tasks}
    alone = api.train(tiny(seed=1, out=str(tasks[0].config.folder.parent / "alone")))
    assert alone.encoder_path.read_bytes() == bits(tasks[1])


def test_a_failed_run_is_reported_and_does_not_stop_the_others(tiny: Make) -> None:
    bad, good = Task(tiny(federation={"batch_size": 1000})), Task(tiny())
    summary, lines = run([bad, good], workers=1)
    assert [task.config for task in summary.done] == [good.config]
    assert "fewer than federation.batch_size" in summary.failed[str(bad.config.folder)]
    assert any(line.startswith("FAILED") and bad.name in line for line in lines)


def test_a_budget_stops_after_a_whole_round_and_the_rest_is_done_later(tiny: Make) -> None:
    task, waiting = (Task(tiny(seed=seed, federation={"rounds": 100_000})) for seed in (0, 1))
    deadline = time.monotonic() + 20
    while not task.rounds():  # how long a process takes to start is not the budget's matter
        summary, _ = run([task, waiting], workers=1, deadline=deadline)
        assert not summary.failed and {it.config.seed for it in summary.left} == {0, 1}
        late, deadline = time.monotonic() - deadline, time.monotonic() + 60
    assert late < 15 and not waiting.config.folder.exists()
    before = task.rounds()
    summary, _ = run([task], deadline=time.monotonic() + 20)
    assert task.rounds() >= before and task.run.checkpoint_path.exists()


def test_only_records_are_enough_to_be_done(tiny: Make) -> None:
    task = Task(tiny())
    api.train(task.config)
    assert task.done()
    task.run.encoder_path.unlink()
    assert not task.done()  # a checkpoint without an encoder: killed before the end
    task.run.checkpoint_path.unlink()
    assert task.done() and not replace(task, measures=("shift",)).done()


def test_what_is_measured_after_training_is_done_too(tiny: Make) -> None:
    task = Task(tiny(), ("shift",))
    run([Task(task.config)])
    summary, _ = run([task])
    assert len(summary.done) == 1 and [record["kind"] for record in task.run.records.read()][-1] == "shift"


STUDY = "from fedgala.cli import main; main()"


def command(folder: Path, out: Path, *more: str) -> list[str]:
    tiny = (
        "--data.size 24 --views.crop 16 --encoder small --model.projector_hidden 16 --model.projector_output 8 "
        "--epochs 1 --batch-size 8 --probe.epochs 3 --probe.splits 2 --device cpu --threads 1 --preset paper"
    )
    study = ["study", "run", "table4", "--data", str(folder), "--out", str(out), "--seeds", "1", *tiny.split(), *more]
    return [sys.executable, "-c", STUDY, *study]


def encoders(out: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in sorted(out.glob("runs/*/encoder.safetensors"))}


def test_a_study_from_the_command_line_and_its_table(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "studies"
    arguments = command(folder, out, "--rounds", "1", "--targets", "bright,dark")[3:]
    assert fedgala(arguments) == 0
    first = capsys.readouterr()
    lines = first.out.splitlines()
    header = next(line for line in lines if "average" in line)
    assert header.split() == ["bright", "dark", "average"]
    assert len([line for line in lines if line.startswith(("FedGaLA  ", "w/o"))]) == 4 and "8 of 8" in first.err
    before = encoders(out)
    assert fedgala(arguments) == 0
    again = capsys.readouterr()
    assert again.out == first.out and encoders(out) == before and len(before) == 8 and ": done;" not in again.err
    assert fedgala(["study", "table", "table4", "--out", str(out), "--format", "csv"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("study,data,variant,target") and len(shown.splitlines()) == 13


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_study_that_is_stopped_goes_on(how: signal.Signals, folder: Path, tmp_path: Path) -> None:
    out, expected = tmp_path / "studies", tmp_path / "expected"
    rounds = ("--rounds", "8", "--targets", "plain", "--jobs", "2")
    process = subprocess.Popen(command(folder, out, *rounds), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    until = time.monotonic() + 120
    while not list(out.glob("runs/*/checkpoint.safetensors")) and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(how)
    _, said = process.communicate(timeout=120)
    assert process.returncode == (-how if how == signal.SIGKILL else 130), said
    if how != signal.SIGKILL:
        assert "the same command goes on" in said and "Traceback" not in said
    for place in (out, expected):
        done = subprocess.run(command(folder, place, *rounds), capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
    assert encoders(out) == encoders(expected) and len(encoders(out)) == 4


@pytest.mark.slow
def test_two_commands_share_one_study(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "studies"
    both = [
        subprocess.Popen(command(folder, out, "--rounds", "3", "--jobs", "1"), stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [process.communicate(timeout=600)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert sum(text.count(": done;") for text in said) >= 12 and len(encoders(out)) == 12
    for path in out.glob("runs/*/records.jsonl"):
        rounds = [json.loads(line)["round"] for line in path.read_text().splitlines() if '"round", ' in line]
        assert rounds == sorted(set(rounds)), path


@pytest.mark.parametrize("text, seconds", [("90s", 90), ("30m", 1800), ("1h30m", 5400), ("0.5h", 1800)])
def test_times(text: str, seconds: float) -> None:
    assert duration(text) == seconds


def test_time_that_is_none() -> None:
    with pytest.raises(ConfigError, match="--budget soon: expected a time such as"):
        duration("soon")
    assert [spoken(it) for it in (40, 700, 11_100)] == ["40 s", "12 min", "3 h 5 min"]


def test_a_cpu_takes_a_run_for_each_core_and_a_named_device_one() -> None:
    assert places(2, "cpu")[0] == ["cpu", "cpu"]
    assert places(None, "cuda:1") == (["cuda:1"], None)


def test_a_folder_that_can_not_be_written_is_no_busy_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError) as caught, claimed(tmp_path / "file" / "run", settle=0):
        pass
    assert not isinstance(caught.value, Busy)
