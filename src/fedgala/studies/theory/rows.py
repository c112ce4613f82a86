"""A check is a row: an estimate, the paper's formula, the exact value. Rows are lines of ``records.jsonl``."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from fedgala.storage import write_text

SIGMAS = 4.0  # among some 250 independent estimates, one beyond 4 standard errors has a probability of 2 %
NEGLIGIBLE = 1e-9  # what quadrature cannot tell from zero


@dataclass(frozen=True)
class Row:
    """One point of a sweep."""

    statement: str
    case: str
    at: Mapping[str, float]  # where on the sweep: correlation, information (nats), spread, ...
    estimate: float
    standard_error: float
    formula: float  # what the paper derives or claims
    exact: float | None  # without its approximations, where that is known

    @property
    def error(self) -> float | None:
        """The formula's relative error; None where there is nothing exact to compare with, or it is 0."""
        return None if self.exact is None or abs(self.exact) < NEGLIGIBLE else self.formula / self.exact - 1

    @property
    def deviation(self) -> float | None:
        """How many standard errors the estimate is from the exact value."""
        if self.exact is None:
            return None
        gap = self.estimate - self.exact
        if self.standard_error < NEGLIGIBLE**2:
            return 0.0 if abs(gap) < NEGLIGIBLE else float("inf")
        return gap / self.standard_error

    @property
    def agrees(self) -> bool:
        """Whether Monte Carlo and the exact value agree within `SIGMAS` standard errors."""
        return self.deviation is None or abs(self.deviation) <= SIGMAS


def out_of_order(rows: Sequence[Row], falling: bool = False) -> float | None:
    """The share of pairs of points whose exact values are not in the order of their mutual information.

    0 is monotone. Pairs of equal information are left out; None where no pair is left.
    """
    known = [(row.at["information"], row.exact) for row in rows if "information" in row.at and row.exact is not None]
    pairs = [(a, b) if a[0] < b[0] else (b, a) for a, b in combinations(known, 2) if abs(a[0] - b[0]) > NEGLIGIBLE]
    wrong = [(high[1] >= low[1]) if falling else (high[1] <= low[1]) for low, high in pairs]
    return sum(wrong) / len(wrong) if wrong else None


def write_rows(path: Path, about: Mapping[str, Any], rows: Sequence[Row]) -> None:
    """Write `about` (command, seed, versions) and the rows, an object a line."""
    lines = [{"kind": "theory", **about}, *({"kind": "check", **asdict(row)} for row in rows)]
    write_text(path, "".join(json.dumps(line) + "\n" for line in lines))


def read_rows(path: Path) -> list[Row]:
    """The rows of a file that `write_rows` wrote."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [Row(**{k: v for k, v in line.items() if k != "kind"}) for line in lines if line["kind"] == "check"]
