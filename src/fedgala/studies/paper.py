"""The paper's printed numbers, and where its tables disagree with themselves."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from statistics import fmean
from typing import Any

AVERAGE = "average"
SLACK = 0.1  # what rounding alone can put between a printed average and that of printed cells
RELEASES = {
    "TerraIncognita-9": "TerraIncognita"
}  # what the paper describes has the pictures of the one, the classes of the other


@dataclass(frozen=True)
class Printed:
    """A number in print, per cent."""

    text: str

    @property
    def mean(self) -> float:
        """The number itself."""
        return float(self.text.partition("(")[0])

    @property
    def spread(self) -> float | None:
        """What follows it in brackets."""
        inside = self.text.partition("(")[2].rstrip(")")
        return float(inside) if inside else None


@dataclass(frozen=True)
class Block:
    """One data set and one share of labels in one table: rows of cells, by column."""

    table: str
    data: str
    ratio: float
    rows: Mapping[str, Mapping[str, Printed]]

    def find(self, label: str, column: str) -> Printed | None:
        """The printed cell; `AVERAGE` is a column."""
        return self.rows.get(label, {}).get(column)

    def slips(self) -> Iterator[str]:
        """Where a printed average is not that of its cells, or a row is printed elsewhere as something else."""
        for label, row in self.rows.items():
            cells = [cell.mean for column, cell in row.items() if column != AVERAGE]
            mean = fmean(cells)
            if AVERAGE in row and abs(mean - row[AVERAGE].mean) > SLACK + 1e-6:
                yield f"{label}: the printed average is {row[AVERAGE].text}, that of the printed cells {mean:.1f}"
            for other, name in self._twins(label):
                where = f"in {other.table} at {100 * other.ratio:.0f} % of the labels"
                yield f"{label}: the same numbers are printed as {name} {where}"

    def _twins(self, label: str) -> Iterator[tuple["Block", str]]:
        """The rows of other blocks that have the same numbers, but are of another method or another share."""
        for other in blocks():
            for name, row in other.rows.items():
                same_thing = other.ratio == self.ratio and _same_method(name, label)
                if other.data == self.data and row == self.rows[label] and not same_thing:
                    yield other, name


@dataclass(frozen=True)
class FigureText:
    """What the text says about a figure."""

    says: str
    points: Sequence[tuple[float, float]]


def block(table: str, data: str, ratio: float) -> Block | None:
    """What is printed in `table` for a data set, by its name in the catalogue, at a share of labels."""
    wanted = (table, RELEASES.get(data, data), ratio)
    return next((it for it in blocks() if (it.table, it.data, it.ratio) == wanted), None)


@cache
def blocks() -> tuple[Block, ...]:
    """All tables."""
    return tuple(_blocks())


@cache
def figure_texts() -> dict[str, FigureText]:
    """What the text says, by figure."""
    return {it["name"]: FigureText(it["says"], [(x, y) for x, y in it.get("points", ())]) for it in _file()["figure"]}


def _blocks() -> Iterator[Block]:
    for it in _file()["block"]:
        columns = [*it["columns"], *([AVERAGE] if it.get("average", True) else [])]
        rows = {label: dict(zip(columns, map(Printed, cells), strict=True)) for label, cells in it["rows"].items()}
        yield Block(it["table"], it["data"], it["ratio"], rows)


def _same_method(one: str, other: str) -> bool:
    """The full method and the plain baseline go by several names."""
    return any({one, other} <= names for names in NAMES) or one == other


NAMES = (
    {"FedGaLA (ours)", "FedGaLA", "FedGaLA w/ SimCLR"},
    {"FedSimCLR", "w/o GA & LA"},
)


@cache
def _file() -> dict[str, list[dict[str, Any]]]:
    return tomllib.loads(files(__package__).joinpath("paper_numbers.toml").read_text(encoding="utf-8"))
