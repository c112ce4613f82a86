"""``python -m fedgala.studies.theory --out DIR``: the checks; with ``--page`` also a page's tables and pictures."""

import argparse
from pathlib import Path

from fedgala.studies.theory.page import put_into, tables
from fedgala.studies.theory.study import SAMPLES, check_theory


def main() -> None:
    """Check the theory from the command line."""
    parser = argparse.ArgumentParser(prog="python -m fedgala.studies.theory", description="Check the paper's theory.")
    parser.add_argument("--out", type=Path, default=Path("theory"), help="folder for records, and pictures in plots/")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--samples", type=int, default=SAMPLES, help="pairs of samples behind an estimate")
    parser.add_argument("--page", type=Path, help="a page to put the tables into, with pictures in img/ beside it")
    chosen = parser.parse_args()
    plots = chosen.page.parent / "img" if chosen.page else None
    rows = check_theory(chosen.out, chosen.seed, chosen.samples, lambda line: print(line, flush=True), plots)
    if chosen.page:
        put_into(chosen.page, tables(rows))
    else:
        print(tables(rows))


if __name__ == "__main__":
    main()
