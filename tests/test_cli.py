"""The command line: one clear line and an exit code for every mistake, help that teaches, results that can be used."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as parquet
import pytest
import torch
from PIL import Image

from fedgala import api
from fedgala.cli import main
from fedgala.cli.app import run
from fedgala.config import RunConfig
from fedgala.run import Run
from fedgala.toml import read_toml, to_toml

Make = Callable[..., RunConfig]


@pytest.fixture
def trained(tiny: Make) -> Run:
    return api.train(tiny())


COMMANDS = ["", "train", "probe", "embed", "report", "demo", "data", "data check", "data show", "data pack"]
COMMANDS += ["study", "study run", "study table", "study page"]


@pytest.mark.parametrize("command", [command.split() for command in COMMANDS])
def test_help_of_every_command(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command, "--help"]) == 0
    text = capsys.readouterr().out
    assert "Usage: fedgala" in text and len(text.splitlines()) > 8


def test_help_of_train_shows_settings_with_their_defaults() -> None:
    command = [sys.executable, "-c", "from fedgala.cli import main; main()", "train", "--help"]
    wide = {**os.environ, "COLUMNS": "200"}
    done = subprocess.run(command, env=wide, capture_output=True, text=True, timeout=60, check=True)
    text = " ".join(done.stdout.split())
    for word in ("--federation.rounds", "--local.threshold", "--server.gamma", "tau", "default: 100", "0.08,1"):
        assert word in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian"], "No such command"),
        (["train", "--rouns", "3"], "--rouns"),
        (["train", "--rounds", "many"], "federation.rounds = 'many': expected a whole number"),
        (["study", "run", "tabel4", "--data", "shapes"], "there is no study 'tabel4': did you mean table4?"),
        (["study", "run", "table4"], "--data is missing"),
        (["study", "run", "table4", "--data", "shapes", "--seed", "3"], "use --seeds COUNT"),
        (["study", "run", "table4", "--data", "shapes", "--targets", "scetch"], "did you mean sketch?"),
        (["study", "run", "table4", "--data", "shapes", "--preset", "papr"], "--preset papr: did you mean paper?"),
        (["study", "run", "table4", "--data", "shapes", "--budget", "soon"], "expected a time such as"),
        (["study", "table", "table4", "--out", "/no/such"], "/no/such holds no study table4"),
        (["study", "table", "table4", "--format", "html"], "--format html: allowed: csv, latex, markdown, text"),
        (["study", "page", "/no/such.md"], "/no/such.md"),
        (["train", "--rounds", "0"], "federation.rounds = 0: must be at least 1"),
        (["train", "--preset", "papr"], "--preset papr: did you mean paper?"),
        (["train", "--local.sign", "up"], "local.sign = 'up': allowed: descent, printed"),
        (["train", "--data", "/no/such/place"], "/no/such/place"),
        (["train", "--config", "/no/such.toml"], "config /no/such.toml: No such file"),
        (["train", "--data", "shapes", "--target", "scetch"], "did you mean sketch?"),
        (["report", "/no/such/run"], "is not the folder of a run"),
        (["probe", "/no/encoder.safetensors", "shapes"], "/no/encoder.safetensors: no such file"),
        (["embed", "e.safetensors", "shapes", "-o", "x.csv"], "allowed endings: .npz, .parquet"),
        (["embed", "e.safetensors", "shapes"], "Missing option"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert message in captured.err and len(captured.err.strip().splitlines()) == 1 and not captured.out
    assert not list(tmp_path.iterdir())


def test_debug_shows_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "--rounds", "0", "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_dry_run_prints_a_configuration_that_gives_itself(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["train", "--preset", "paper", "--rounds", "3", "--dry-run"]) == 0
    file = tmp_path / "c.toml"
    file.write_text(capsys.readouterr().out)
    config = RunConfig.from_dict(read_toml(file))
    assert config.federation.rounds == 3 and config.local.sign == "printed"
    assert to_toml(config) == file.read_text()


def test_train_then_report_then_again(
    tiny: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDGALA_CACHE", str(tmp_path / "cache"))  # other tests have decoded the same pictures
    (tmp_path / "c.toml").write_text(to_toml(tiny()))
    assert run(["train", "--config", str(tmp_path / "c.toml")]) == 0
    captured = capsys.readouterr()
    folder = Path(captured.out.split()[1]).parent
    lines = captured.err.splitlines()
    assert "pictures read: 60 of 60" in lines
    assert any(line.startswith("round 2/2  loss") and "in conflict" in line for line in lines)
    assert lines[-1].startswith("after round 2:") and "% with 10% of the labels" in lines[-1]
    assert run(["report", str(folder)]) == 0
    report = capsys.readouterr().out
    assert "finished" in report and "GB of memory" in report
    assert run(["train", "--config", str(tmp_path / "c.toml"), "--quiet"]) == 0
    assert "already finished" in capsys.readouterr().err


def test_quiet_says_nothing_but_where_things_are(
    tiny: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.toml").write_text(to_toml(tiny()))
    assert run(["train", "--config", str(tmp_path / "c.toml"), "-q"]) == 0
    captured = capsys.readouterr()
    assert not captured.err and captured.out.splitlines()[0].endswith("encoder.safetensors")


def test_embed_gives_features_with_names(
    trained: Run, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "dark" / "cat" / "broken.png").write_bytes(b"not a picture")
    npz, table = tmp_path / "f.npz", tmp_path / "f.parquet"
    for output in (npz, table):
        assert run(["embed", str(trained.encoder_path), str(folder), "-o", str(output), "--size", "24"]) == 0
    assert "1 file skipped" in capsys.readouterr().err
    arrays, rows = np.load(npz), parquet.read_table(table).to_pydict()
    assert arrays["features"].shape == (60, trained.encoder.features)
    np.testing.assert_array_equal(np.array(rows["features"], dtype=np.float32), arrays["features"])
    assert rows["name"] == arrays["name"].tolist() and rows["domain"].count("dark") == 20
    index = rows["name"].index("plain/dog/3.png")
    assert (rows["domain"][index], rows["label"][index]) == ("plain", "dog")
    pixels = torch.from_numpy(np.array(Image.open(folder / "plain" / "dog" / "3.png"))).permute(2, 0, 1)[None]
    from fedgala.data import augment

    picture = augment.resize(pixels, torch.tensor([[24, 24]]), 16)
    with torch.no_grad():
        expected = trained.encoder(picture)[0]
    torch.testing.assert_close(torch.from_numpy(arrays["features"][index]), expected, rtol=1e-4, atol=1e-5)


def test_probe_prints_a_row_per_labelled_domain(trained: Run, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["probe", str(trained.encoder_path), str(folder), "--size", "24", "--splits", "2"]
    assert run(command) == 0
    text = capsys.readouterr().out
    assert "bright" in text and "dark" in text and "10% labels" in text and "±" in text
    assert run([*command, "--domain", "plian"]) == 2
    assert "did you mean plain?" in capsys.readouterr().err
    assert run([*command, "--ratios", "a"]) == 2
    assert "--ratios a: expected numbers" in capsys.readouterr().err


def test_a_domain_that_cannot_be_probed_does_not_hide_the_others(
    trained: Run, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(folder / "dark" / "cat")
    command = ["probe", str(trained.encoder_path), str(folder), "--size", "24", "--splits", "2"]
    assert run(command) == 0
    captured = capsys.readouterr()
    assert "bright" in captured.out and "dark" not in captured.out
    assert "dark: no probe, a probe needs images of at least 2 classes; these 10 are of 1" in captured.err
    assert run([*command, "--domain", "dark"]) == 2


def test_closed_pipe_is_no_traceback(folder: Path) -> None:
    command = f"{sys.executable} -c 'from fedgala.cli import main; main()' data check {folder} | true"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr


COMMAND = [sys.executable, "-c", "from fedgala.cli import main; main()"]


def test_a_full_output_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, "train", "--dry-run"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    assert (done.returncode, done.stderr) == (2, "fedgala: No space left on device\n")


def test_a_terminal_without_a_character_shows_its_code(folder: Path) -> None:
    folder = folder.rename(folder.with_name("caf\udce9"))
    for encoding, shown in (("ascii", "\\udce9: "), ("utf-8", "\\udce9: ")):
        environment = {**os.environ, "PYTHONIOENCODING": encoding}
        done = subprocess.run(
            [*COMMAND, "data", "check", folder], env=environment, capture_output=True, text=True, timeout=60, check=True
        )
        assert f"caf{shown}60 pictures in 3 domains" in done.stdout


def test_without_typer_one_line_says_what_to_do() -> None:
    code = "import sys; sys.modules['typer'] = None; from fedgala.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and done.stderr.startswith("fedgala: the command line needs typer")
    assert len(done.stderr.strip().splitlines()) == 1


def test_version(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["fedgala", "--version"])
    with pytest.raises(SystemExit) as ending:
        main()
    assert ending.value.code == 0 and capsys.readouterr().out.startswith("fedgala 0.")


def test_unwritable_place_is_one_line(tiny: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "c.toml").write_text(to_toml(tiny(out=str(tmp_path / "file"))))
    assert run(["train", "--config", str(tmp_path / "c.toml"), "-q"]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


@pytest.mark.skipif(os.geteuid() == 0 if hasattr(os, "geteuid") else True, reason="root reads everything")
def test_unreadable_folder_is_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder.chmod(0)
    try:
        assert run(["train", "--data", str(folder)]) == 2
        assert len(capsys.readouterr().err.strip().splitlines()) == 1
    finally:
        folder.chmod(0o755)


def test_live_progress_draws_and_goes_away(tiny: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedgala.cli.progress import Live

    monkeypatch.setenv("COLUMNS", "120")
    live: Any = Live()
    live.console.file = open(os.devnull, "w")  # noqa: SIM115
    api.train(tiny(), live)
    live.close()
    live.console.file.close()
    assert live.done == live.total == 8
