"""Figures of curves: accuracy, or the share of gradients in conflict, against what a study varies."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from fedgala.report.plots import COLORS
from fedgala.report.tables import Table, cell
from fedgala.studies.exhibit import Exhibit
from fedgala.studies.outcome import Entry, Outcome, accuracy
from fedgala.studies.paper import FigureText, figure_texts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAPERS_DATA = "PACS"  # that its figures are of
Reading = Iterator[tuple[str, float, float]]  # curve, x, y of one run


@dataclass(frozen=True)
class Chart:
    """What a figure plots, and how its axes are labelled."""

    name: str
    x: str
    y: str
    read: Callable[[Entry], Reading]
    ticks: bool = False  # only the values that occur, evenly spaced
    shown: int = 12  # rows of the table at most; the picture and the CSV have all

    def exhibit(self, outcome: Outcome) -> Exhibit:
        """Picture and table of the study's runs."""
        curves = self._curves(outcome)
        text = figure_texts()[self.name]
        return Exhibit(
            [self._table(outcome, curves, text)],
            self._facts(outcome, curves),
            lambda figure: self._draw(figure, outcome, curves, text),
        )

    def _curves(self, outcome: Outcome) -> dict[str, dict[float, list[float]]]:
        """By curve and x: one value for each seed, the mean over its targets."""
        found: dict[str, dict[float, dict[int, list[float]]]] = {}
        for entry in outcome.entries:
            for curve, x, y in self.read(entry):
                found.setdefault(curve, {}).setdefault(x, {}).setdefault(entry.seed, []).append(y)
        return {
            curve: {x: [fmean(of_seed) for of_seed in seeds.values()] for x, seeds in sorted(points.items())}
            for curve, points in found.items()
        }

    def _table(
        self, outcome: Outcome, curves: Mapping[str, Mapping[float, Sequence[float]]], text: FigureText
    ) -> Table:
        theirs = dict(text.points) if outcome.data == PAPERS_DATA else {}
        known = sorted({x for points in curves.values() for x in points})
        xs = sorted({known[i * (len(known) - 1) // (self.shown - 1)] for i in range(self.shown)} if known else set())
        xs = sorted({*xs, *theirs})
        header = [self.x, *curves, *(["the paper's text"] if theirs else [])]
        rows = [
            [f"{x:g}", *(_cell(points.get(x, ()), len(outcome.seeds)) for points in curves.values())]
            + ([f"{theirs[x]:g}" if x in theirs else ""] if theirs else [])
            for x in xs
        ]
        where = ", ".join(outcome.targets)
        caption = (
            f"{self.y[:1].upper()}{self.y[1:]} ({outcome.data}, unseen: {where}): mean ± standard deviation over "
            f"{len(outcome.seeds)} seed{'s' if len(outcome.seeds) > 1 else ''}, other numbers of runs in brackets."
        )
        return Table(caption, header, rows, [f"The paper (PACS, photo): {text.says}."])

    def _facts(
        self, outcome: Outcome, curves: Mapping[str, Mapping[float, Sequence[float]]]
    ) -> list[dict[str, object]]:
        return [
            {
                "study": outcome.study,
                "data": outcome.data,
                "target": " ".join(outcome.targets),
                "curve": curve,
                "x": x,
                "mean": round(fmean(values), 3),
                "spread": round(stdev(values), 3) if len(values) > 1 else "",
                "runs": len(values),
            }
            for curve, points in curves.items()
            for x, values in points.items()
        ]

    def _draw(
        self,
        figure: "Figure",
        outcome: Outcome,
        curves: Mapping[str, Mapping[float, Sequence[float]]],
        text: FigureText,
    ) -> None:
        axes = figure.subplots()
        known = sorted({x for points in curves.values() for x in points})
        place = {x: float(i) for i, x in enumerate(known)} if self.ticks else {x: x for x in known}
        for index, (curve, points) in enumerate(curves.items()):
            _curve(axes, index, curve, {place[x]: values for x, values in points.items()})
        if outcome.data == PAPERS_DATA and text.points and not self.ticks:
            xs, ys = zip(*text.points, strict=True)
            axes.plot(xs, ys, "k*", ms=9, ls="none", label="the paper's text")
        if self.ticks:
            axes.set_xticks(range(len(known)), [f"{x:g}" for x in known])
        finish(axes, self.x, self.y, f"{outcome.data}, unseen: {', '.join(outcome.targets)}")


def _cell(values: Sequence[float], asked: int) -> str:
    return cell(values, 1) + ("" if len(values) in (0, asked) else f" ({len(values)})")


def _curve(axes: "Axes", index: int, label: str, points: Mapping[float, Sequence[float]]) -> None:
    """Means as a line, the spread over seeds as bars, or as a band where the points are many."""
    xs, means = list(points), [fmean(values) for values in points.values()]
    spreads = [stdev(values) if len(values) > 1 else 0.0 for values in points.values()]
    color, marker, line = COLORS[index % len(COLORS)], "os^Dv"[index % 5], ("-", "--", ":", "-.")[index % 4]
    if len(xs) > 25:
        axes.plot(xs, means, color=color, ls=line, lw=1.5, label=label)
        low, high = ([m + s * sign for m, s in zip(means, spreads, strict=True)] for sign in (-1, 1))
        axes.fill_between(xs, low, high, color=color, alpha=0.2, lw=0)
    else:
        axes.errorbar(xs, means, spreads, color=color, marker=marker, ls=line, ms=5, lw=1.5, capsize=3, label=label)


def finish(axes: "Axes", x: str, y: str, title: str) -> None:
    """Labels, and no more ink than needed."""
    axes.set(xlabel=x, ylabel=y)
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8, framealpha=0.7, edgecolor="none")
    else:
        axes.text(0.5, 0.5, "no run is finished", transform=axes.transAxes, ha="center", color="gray")


def final(ratio: float) -> Callable[[Entry], Reading]:
    """Accuracy after the last round, where the variant says."""

    def read(entry: Entry) -> Reading:
        value = accuracy(entry.last, ratio, "encoder")
        if value is not None:
            yield str(entry.at.get("curve", "FedGaLA")), float(entry.at["x"]), value

    return read


def by_round(ratio: float, start: int = 0) -> Callable[[Entry], Reading]:
    """Accuracy whenever it was measured, from round `start` on."""

    def read(entry: Entry) -> Reading:
        for evaluation in entry.of("evaluation"):
            value = accuracy(evaluation, ratio, "encoder")
            if value is not None and evaluation["round"] >= start:
                yield entry.label, float(evaluation["round"]), value

    return read


def by_ratio(entry: Entry) -> Reading:
    """Accuracy after the last round, for each share of labels."""
    for ratio in (entry.last or {}).get("probe", {}).get("encoder", ()):
        value = accuracy(entry.last, float(ratio), "encoder")
        if value is not None:
            yield entry.label, 100 * float(ratio), value


def conflicts(entry: Entry) -> Reading:
    """The share of gradients that local alignment did not let through as they were, round by round."""
    for record in entry.of("round"):
        if "conflict" in record:
            yield entry.label, float(record["round"]), 100 * record["conflict"]
