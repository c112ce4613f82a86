"""The examples run as they are."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("round_by_hand", "round 3  weights"),
        ("quickstart", "encoder.safetensors: (8, 192)"),
        ("own_method", "encoder in runs"),
    ],
)
def test_example(name: str, expected: str, tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / f"{name}.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert expected in done.stdout
