"""What a step costs: counted right, and said in a way that can be read."""

import json
from pathlib import Path

import pytest
import torch

from fedgala.bench import Clock, Traffic, copy_rate, matrix_rate
from fedgala.cli.app import run

CPU = torch.device("cpu")
SMALL = ["--preset", "cpu", "--batch-size", "8", "--views.crop", "16", "--threads", "1", "--device", "cpu"]


def test_traffic_counts_what_goes_in_and_comes_out_but_no_views() -> None:
    a, b = torch.ones(10), torch.ones(10)
    with Traffic() as traffic:
        assert (a + b).view(5, 2).T.shape == (2, 5)
    assert traffic.bytes == 3 * 10 * 4


def test_ceilings_are_positive_and_clocks_do_not_run_backwards() -> None:
    assert matrix_rate(CPU, torch.float32) > 0 and copy_rate(CPU) > 0
    clock = Clock(CPU)
    assert clock.lap() >= 0


@pytest.mark.parametrize("method", ["fedgala", "fedx", "supervised", "darling"])
def test_the_command_prints_and_keeps_the_figures(
    method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "step.json"
    assert run(["bench", *SMALL, "--method", method, "--repeats", "2", "--json", str(file)]) == 0
    shown, kept = capsys.readouterr().out, json.loads(file.read_text())
    assert kept["views"] == 16 and len(kept["whole"]) == 2 and all(len(it) == 2 for it in kept["seconds"].values())
    assert kept["operations"] > 1e6 and kept["bytes"] > 1e6 and kept["machine"]["torch"] == torch.__version__
    assert kept["configuration"]["federation"]["batch_size"] == 8
    assert "forward + backward" in shown and "views/s" in shown and "peak memory" in shown


def test_operations_are_those_of_the_encoders_convolutions_and_the_projector() -> None:
    from fedgala.bench import measure
    from fedgala.config import RunConfig
    from fedgala.presets import CPU as SETTINGS

    small = RunConfig.from_dict({**SETTINGS, "federation": {"batch_size": 4}, "local": {"rule": "none"}})
    larger = RunConfig.from_dict({**SETTINGS, "federation": {"batch_size": 8}, "local": {"rule": "none"}})
    one, two = (measure(config, CPU, 1, lambda line: None).operations for config in (small, larger))
    assert two == pytest.approx(2 * one, rel=0.02)  # but for the loss, which grows with the square
