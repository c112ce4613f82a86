"""The example app on Flower's own simulation, which needs Ray: the same bits as on one machine."""

import json
import os
import shutil
import signal
import subprocess
import time
import tomllib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="the Flower engine needs fedgala[flower]")
pytest.importorskip("ray", reason="Flower's simulation needs pip install 'flwr[simulation]<1.42'")

from flwr.common.config import flatten_dict

from fedgala import api
from fedgala.engines.flower.control import environment, flower
from fedgala.engines.flower.demo import same_encoder
from fedgala.engines.flower.server import configurations
from fedgala.run import Run

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[1] / "examples" / "flower_app"


def left_behind(home: Path) -> list[int]:
    """The processes that live in this home of Flower's: `flwr run` leaves a server there."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"FLWR_HOME={home}".encode() in (place / "environ").read_bytes().split(b"\0"):
                found.append(int(place.name))
    return found


def test_the_example_on_flowers_simulation(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "app")
    project = tmp_path / "app" / "pyproject.toml"
    text = project.read_text().replace('out = "runs"', f"out = {json.dumps(str(tmp_path / 'there'))}")
    project.write_text(text + '\n[tool.flwr.app.config.engine]\nthreads = 1\ndevice = "cpu"\n')
    config, _ = configurations(flatten_dict(tomllib.loads(project.read_text())["tool"]["flwr"]["app"]["config"]))
    home = tmp_path / "flwr"
    variables = environment(home) | {"FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1"}
    command = [flower("flwr"), "run", str(tmp_path / "app"), "--stream"]
    command += ["--federation-config", "num-supernodes=3 client-resources-num-cpus=1"]
    try:
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=400, check=False)
        run = Run(config, config.folder)
        end = time.monotonic() + 120
        while not run.finished and time.monotonic() < end:
            time.sleep(1)
        assert run.finished, done.stdout[-3000:] + done.stderr[-3000:]
        assert [len(record["clients"]) for record in run.records.read("round")] == [3, 3]
        assert same_encoder(run, api.train(replace(config, out=str(tmp_path / "here"))))
    finally:
        for sign in (signal.SIGTERM, signal.SIGKILL):
            for number in left_behind(home):
                with suppress(ProcessLookupError):
                    os.kill(number, sign)
            time.sleep(2)
    assert not left_behind(home)
