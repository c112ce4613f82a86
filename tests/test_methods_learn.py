"""Every method learns something: a short run on `shapes` beats the encoder it began with. Prints a table."""

from pathlib import Path
from statistics import fmean

import pytest

from fedgala.config import RunConfig, merge
from fedgala.methods import METHODS
from fedgala.presets import CPU
from fedgala.report.tables import table
from fedgala.studies.schedule import carry_out
from fedgala.studies.watch import Watcher
from fedgala.studies.work import Task

pytestmark = pytest.mark.slow

ROUNDS, TARGET = 6, "sketch"
LEAST = 0.02  # points of accuracy, of 1, above the untrained encoder


def test_every_method_beats_the_untrained_encoder_on_shapes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    over = {
        "data": {"target": TARGET},
        "federation": {"rounds": ROUNDS},
        "engine": {"threads": 1},
        "out": str(tmp_path),
    }
    settings = {name: merge(merge(CPU, method.settings), {**over, "name": name}) for name, method in METHODS.items()}
    tasks = [Task(RunConfig.from_dict(found)) for found in settings.values()]
    summary = carry_out(tasks, ["cpu", "cpu"], 1, Watcher(lambda line: None))
    assert not summary.failed and not summary.left, summary.failed
    rows, gains = [], {}
    for name, run in zip(METHODS, (task.run for task in tasks), strict=True):
        before, after = (fmean(run.records.read("evaluation")[index]["probe"]["encoder"]["0.1"]) for index in (0, -1))
        losses = [record["loss"] for record in run.records.read("round")]
        rank = run.records.read("evaluation")[-1]["monitor"]["effective_rank"]
        gains[name] = after - before
        shown = (100 * before, 100 * after, 100 * gains[name], losses[0], losses[-1], rank)
        rows.append([name, *(f"{value:.1f}" for value in shown)])
    with capsys.disabled():
        print(f"\n\nprobe of 10 % on {TARGET} of shapes, seed 0, {ROUNDS} rounds of the cpu preset")
        print(table(["method", "untrained", "trained", "gain", "first loss", "last loss", "rank"], rows))
    assert min(gains.values()) >= LEAST, min(gains, key=lambda name: gains[name])
