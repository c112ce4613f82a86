"""Tables of accuracy on unseen domains: ours with its spread, the printed number below, and the difference."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from fedgala.report.tables import Table
from fedgala.studies.compare import sign_flip_test
from fedgala.studies.exhibit import Exhibit
from fedgala.studies.outcome import Outcome, accuracy
from fedgala.studies.paper import AVERAGE, Block, Printed, block

Pair = tuple[str, str]  # labels of a method and of what it is compared with


@dataclass(frozen=True)
class Cell:
    """One number of a table: what the runs gave, and what is printed."""

    values: tuple[float, ...]  # one for each seed, per cent
    printed: Printed | None = None

    @property
    def mean(self) -> float | None:
        """Over the seeds."""
        return fmean(self.values) if self.values else None

    @property
    def spread(self) -> float | None:
        """The sample standard deviation over the seeds."""
        return stdev(self.values) if len(self.values) > 1 else None

    @property
    def difference(self) -> float | None:
        """Ours minus printed."""
        return None if self.mean is None or self.printed is None else self.mean - self.printed.mean

    def text(self, asked: int) -> str:
        """Mean and spread; in brackets how many runs, where that is not as many as asked for."""
        if self.mean is None:
            return ""
        spread = "" if self.spread is None else f" ± {self.spread:.1f}"
        return f"{self.mean:.1f}{spread}" + ("" if len(self.values) == asked else f" ({len(self.values)})")


def accuracy_exhibit(
    outcome: Outcome, table: str, ratios: Sequence[float], compare: Sequence[Pair] = (), untrained: bool = False
) -> Exhibit:
    """A table for each share of labels.

    Args:
        outcome: the study.
        table: the paper's, as `paper_numbers.toml` has it.
        ratios: shares of the unseen domain's labels.
        compare: rows to test against one another.
        untrained: whether to add a row for the encoder as it was before training.
    """
    parts = [_one(outcome, block(table, outcome.data, ratio), ratio, compare, untrained) for ratio in ratios]
    return Exhibit([part for part, _ in parts], [fact for _, facts in parts for fact in facts])


def _one(
    outcome: Outcome, printed: Block | None, ratio: float, compare: Sequence[Pair], untrained: bool
) -> tuple[Table, list[dict[str, object]]]:
    columns = (*outcome.targets, *([AVERAGE] if len(outcome.targets) > 1 else []))
    rows: list[list[str]] = []
    facts: list[dict[str, object]] = []
    for label in outcome.labels:
        cells = {column: _cell(outcome, printed, label, column, ratio) for column in columns}
        rows += _lines(label, list(cells.values()), len(outcome.seeds))
        facts += [_fact(outcome, label, column, ratio, cell) for column, cell in cells.items()]
    if untrained:
        rows.append(["untrained encoder", *(_untrained(outcome, column, ratio) for column in columns)])
    margins = _margins(outcome, ratio) if untrained else ()
    notes = [*margins, *_comparisons(outcome, ratio, compare), *_disagreements(outcome, printed)]
    return Table(_caption(outcome, ratio, printed is not None), ["", *columns], rows, notes), facts


def _lines(label: str, cells: Sequence[Cell], asked: int) -> Iterator[list[str]]:
    yield [label, *(cell.text(asked) for cell in cells)]
    if any(cell.printed for cell in cells):
        yield ["  printed", *(cell.printed.text if cell.printed else "" for cell in cells)]
    if any(cell.difference is not None for cell in cells):
        yield ["  difference", *("" if cell.difference is None else f"{cell.difference:+.1f}" for cell in cells)]


def _cell(outcome: Outcome, printed: Block | None, label: str, column: str, ratio: float) -> Cell:
    found = printed.find(label, column) if printed else None
    if column != AVERAGE:
        values = [outcome.final(label, column, seed, ratio) for seed in outcome.seeds]
        return Cell(tuple(value for value in values if value is not None), found)
    whole = printed is None or set(outcome.targets) == {name for row in printed.rows.values() for name in row} - {
        AVERAGE
    }
    return Cell(tuple(_averages(outcome, label, ratio)), found if whole else None)


def _averages(outcome: Outcome, label: str, ratio: float) -> Iterator[float]:
    """The mean over the targets, for each seed that has them all."""
    for seed in outcome.seeds:
        values = [outcome.final(label, target, seed, ratio) for target in outcome.targets]
        known = [value for value in values if value is not None]
        if len(known) == len(values):
            yield fmean(known)


def _untrained(outcome: Outcome, column: str, ratio: float) -> str:
    """Before the first round; every method starts from the same weights, so any run of the seed tells."""
    targets = outcome.targets if column == AVERAGE else (column,)
    values = []
    for seed in outcome.seeds:
        first = [_before(outcome, target, seed, ratio) for target in targets]
        values += [fmean(it for it in first if it is not None)] if None not in first else []
    return Cell(tuple(values)).text(len(outcome.seeds))


def _before(outcome: Outcome, target: str, seed: int, ratio: float) -> float | None:
    entry = outcome.find(outcome.labels[0], target, seed)
    start = next((it for it in entry.of("evaluation") if it["round"] == 0), None) if entry else None
    return accuracy(start, ratio, outcome.features)


def _margins(outcome: Outcome, ratio: float) -> Iterator[str]:
    """What training is worth, run by run."""
    for label in outcome.labels:
        gains = []
        for target in outcome.targets:
            for seed in outcome.seeds:
                after, before = outcome.final(label, target, seed, ratio), _before(outcome, target, seed, ratio)
                gains += [after - before] if after is not None and before is not None else []
        if gains:
            yield (
                f"{label} minus untrained: {Cell(tuple(gains)).text(len(gains))} points, least {min(gains):+.1f}, "
                f"of {len(gains)} runs."
            )


def _caption(outcome: Outcome, ratio: float, printed: bool) -> str:
    count = len(outcome.seeds)
    spread = f"mean ± standard deviation over {count} seeds" if count > 1 else "one seed, hence no spread"
    theirs = "printed: the paper's, its spread in brackets" if printed else "the paper prints nothing for this data set"
    return (
        f"Accuracy on the unseen domain of {outcome.data}, %: linear probe on the {outcome.features} with "
        f"{100 * ratio:.0f} % of the labels, after the last round (no selection); {spread}, other numbers of runs in "
        f"brackets, no number where no run is finished; {theirs}."
    )


def _comparisons(outcome: Outcome, ratio: float, compare: Sequence[Pair]) -> Iterator[str]:
    for ours, theirs in compare:
        if ours not in outcome.labels or theirs not in outcome.labels:
            continue
        gaps = []
        for target in outcome.targets:
            for seed in outcome.seeds:
                pair = outcome.final(ours, target, seed, ratio), outcome.final(theirs, target, seed, ratio)
                gaps += [pair[0] - pair[1]] if pair[0] is not None and pair[1] is not None else []
        chance = sign_flip_test(gaps)
        if chance is None:
            yield f"{ours} against {theirs}: no pair of runs yet."
            continue
        least = f"; {len(gaps)} pairs can't give less than {2 ** (1 - len(gaps)):.2g}" if len(gaps) < 8 else ""
        yield (
            f"{ours} minus {theirs}: {fmean(gaps):+.2f} points over {len(gaps)} pairs of equal target and seed, "
            f"p = {chance:.2g} (exact sign-flip test, two-sided{least})."
        )


def _disagreements(outcome: Outcome, printed: Block | None) -> Iterator[str]:
    if printed:
        for slip in printed.slips():
            yield f"The paper disagrees with itself. {slip}."


def _fact(outcome: Outcome, label: str, column: str, ratio: float, cell: Cell) -> dict[str, object]:
    def rounded(value: float | None) -> float | str:
        return "" if value is None else round(value, 3)

    return {
        "study": outcome.study,
        "data": outcome.data,
        "variant": label,
        "target": column,
        "labels": ratio,
        "features": outcome.features,
        "mean": rounded(cell.mean),
        "spread": rounded(cell.spread),
        "runs": len(cell.values),
        "selection": "last round",
        "printed": cell.printed.mean if cell.printed else "",
        "printed_spread": "" if cell.printed is None or cell.printed.spread is None else cell.printed.spread,
        "difference": rounded(cell.difference),
    }
