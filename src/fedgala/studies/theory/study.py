"""All checks of the theory: rows, their records, the pictures."""

import time
from collections.abc import Callable
from pathlib import Path

import torch

from fedgala import __version__
from fedgala.studies.theory import pictures
from fedgala.studies.theory.checks import SWEEPS, Setting
from fedgala.studies.theory.rows import Row, write_rows

SAMPLES = 200_000


def check_theory(
    out: Path,
    seed: int = 0,
    samples: int = SAMPLES,
    say: Callable[[str], None] = lambda line: None,
    plots: Path | None = None,
) -> list[Row]:
    """Check Theorem 1, Corollary 1, Proposition 1 and their lemmas; half a minute on one core.

    Args:
        out: the folder for ``records.jsonl``.
        seed: of the setting and of every sample.
        samples: pairs of samples behind each estimate (a tenth as many where a sample is a whole batch).
        say: told about progress.
        plots: the folder for the pictures, if it is not ``out/plots``.
    """
    setting, rows, began = Setting.of(seed, samples), list[Row](), time.process_time()
    for number, sweep in enumerate(SWEEPS, 1):
        say(f"{number} of {len(SWEEPS)}: {(sweep.__doc__ or '').splitlines()[0]}")
        rows += sweep(setting)
    seconds = round(time.process_time() - began, 1)
    about = {
        "seed": seed,
        "samples": samples,
        "cpu_seconds": seconds,
        "fedgala": __version__,
        "torch": torch.__version__,
    }
    write_rows(out / "records.jsonl", about, rows)
    if not pictures.draw(rows, plots or out / "plots"):
        say("no pictures: matplotlib is not installed")
    astray = sum(not row.agrees for row in rows)
    say(f"{len(rows)} checks in {seconds} s of CPU; Monte Carlo and exact values differ in {astray}")
    return rows
