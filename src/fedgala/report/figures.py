"""A run's records as interactive figures: each function takes records and gives a figure, or None without any to show.

A figure says nothing of light and dark: the page colours it. Up to `NAMED` clients have a line each, more are shown as
their mean between the lowest and the highest.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Any

from plotly.graph_objects import Figure

from fedgala.records import Record

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#999999")  # Okabe and Ito; gray for black
DASHES = ("solid", "dash", "dot", "dashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "cross", "triangle-down", "star")
SIZES = "Cividis"  # how large something is, the same to all eyes
NAMED = 12


@dataclass(frozen=True)
class Line:
    """A curve over the rounds, with its spread where there is one."""

    name: str
    rounds: Sequence[int]
    values: Sequence[float]
    spread: Sequence[float] | None = None
    color: int | None = None  # its place in `COLORS`; by order where not said
    style: int | None = None  # its symbol and dashes; by order where not said


def blank(height: int, x: str, y: str, **layout: Any) -> Figure:
    """An empty figure with its axes named."""
    margin = {"l": 8, "r": 8, "t": 8, "b": 8}
    below = {"orientation": "h", "yanchor": "top", "y": -0.18, "x": 0, "maxheight": 0.7}
    base = {"height": height, "margin": margin, "legend": below, "template": "none", "showlegend": True}
    axes = {"xaxis": {"title": {"text": x}, "automargin": True}, "yaxis": {"title": {"text": y}, "automargin": True}}
    return Figure(layout=base | axes | layout)


def bar(title: str, digits: str) -> dict[str, Any]:
    """A colour bar with its title beside it."""
    return {"title": {"text": title, "side": "right"}, "tickformat": digits, "thickness": 12, "outlinewidth": 0}


def curves(lines: Sequence[Line], label: str, *, digits: str = ".3f", range: Sequence[float] | None = None) -> Figure:
    """Lines over the rounds; the legend hides and shows them."""
    figure = blank(330 + 16 * max(0, len(lines) - 3), "round", label, hovermode="x unified")
    for index, line in enumerate(lines):
        color = COLORS[(index if line.color is None else line.color) % len(COLORS)]
        dash, symbol = (index // len(COLORS), index) if line.style is None else (line.style, line.style)
        hover = f"%{{y:{digits}}}" + (f" ± %{{error_y.array:{digits}}}" if line.spread else "")
        figure.add_scatter(
            x=list(line.rounds),
            y=list(line.values),
            name=line.name,
            mode="lines+markers" if len(line.rounds) <= 30 else "lines",
            line={"color": color, "dash": DASHES[dash % len(DASHES)], "width": 2},
            marker={"size": 6, "symbol": SYMBOLS[symbol % len(SYMBOLS)]},
            error_y={"array": list(line.spread), "thickness": 1, "width": 3} if line.spread else None,
            hovertemplate=hover,
        )
    whole_rounds(figure, itertools.chain.from_iterable(line.rounds for line in lines))
    if range:
        figure.update_yaxes(range=list(range))
    if digits.endswith("%"):
        figure.update_yaxes(tickformat=".0%")
    return figure


def whole_rounds(figure: Figure, rounds: Iterable[int]) -> None:
    """Ticks at whole rounds, where there are too few to leave that to chance."""
    if max(rounds, default=0) <= 10:
        figure.update_xaxes(dtick=1)


def per_client(rounds: Sequence[Record], key: str) -> list[Line]:
    """A line per client of what its records say about `key`; lowest, mean and highest, where there are many."""
    names = sorted({name for record in rounds for name in record["clients"]})
    if len(names) > NAMED:
        return _spread(rounds, key)
    lines = []
    for name in names:
        known = [record for record in rounds if key in record["clients"].get(name, {})]
        if known:
            lines.append(Line(name, [r["round"] for r in known], [r["clients"][name][key] for r in known]))
    return lines


def _spread(rounds: Sequence[Record], key: str) -> list[Line]:
    known = [(r["round"], [c[key] for c in r["clients"].values() if key in c]) for r in rounds]
    found = [(number, values) for number, values in known if values]
    kinds: Mapping[str, Callable[[list[float]], float]] = {
        "highest client": max,
        "mean of the clients": fmean,
        "lowest client": min,
    }
    return [
        Line(name, [n for n, _ in found], [of(values) for _, values in found]) for name, of in kinds.items() if found
    ]


def loss(rounds: Sequence[Record]) -> Figure | None:
    """The training loss of each client."""
    return curves(per_client(rounds, "loss"), "loss, mean over the steps") if rounds else None


def conflict(rounds: Sequence[Record]) -> Figure | None:
    """The share of gradients that did not agree, of each client."""
    lines = per_client(rounds, "conflict")
    return curves(lines, "share in conflict", range=(0, 1), digits=".0%") if lines else None


def weights(rounds: Sequence[Record]) -> Figure | None:
    """How much each client counted."""
    return curves(per_client(rounds, "weight"), "weight in the global update") if rounds else None


def accuracy(evaluations: Sequence[Record]) -> Figure | None:
    """Accuracy on the unseen domain: linear probes with their spread over the splits, transfer, kNN; in per cent."""
    known = [record for record in evaluations if "probe" in record]
    if not known:
        return None
    rounds = [record["round"] for record in known]
    lines = [
        _percent(f"{part}, {float(ratio):.0%} of the labels", rounds, [r["probe"][part][ratio] for r in known])
        for part in known[0]["probe"]
        for ratio in known[0]["probe"][part]
    ]
    moved = [record for record in known if "transfer" in record]
    for part in moved[0]["transfer"] if moved else ():
        values = [r["transfer"][part] for r in moved]
        lines.append(_percent(f"{part}, probe from the other domains", [r["round"] for r in moved], values))
    lines.append(_percent("encoder, kNN", rounds, [[r["knn"]] for r in known]))
    if "accuracy" in known[-1]:
        lines.append(_percent("the model's own answers", rounds, [[r["accuracy"]] for r in known]))
    return curves(lines, "right answers, %", digits=".1f")


def _percent(name: str, rounds: Sequence[int], values: Sequence[Sequence[float]]) -> Line:
    spread = [100 * pstdev(each) for each in values] if len(values[0]) > 1 else None
    return Line(name, rounds, [100 * fmean(each) for each in values], spread)


MONITORS = {"alignment": "alignment", "uniformity": "uniformity", "effective_rank": "effective rank"}


def monitors(evaluations: Sequence[Record]) -> Figure | None:
    """What is measured without labels, one below the other."""
    if not evaluations:
        return None
    figure = blank(430, "round", "", showlegend=False, hovermode="x")
    rounds = [record["round"] for record in evaluations]
    for index, (key, name) in enumerate(MONITORS.items()):
        axis = f"y{index + 1}" if index else "y"
        figure.add_scatter(
            x=rounds,
            y=[r["monitor"][key] for r in evaluations],
            name=name,
            yaxis=axis,
            mode="lines+markers",
            line={"color": COLORS[index]},
            marker={"symbol": SYMBOLS[index]},
            hovertemplate="%{y:.3f}",
        )
        low = (2 - index) / 3
        settings = {"domain": [low, low + 0.28], "title": {"text": name}, "automargin": True}
        figure.update_layout({f"yaxis{index + 1}" if index else "yaxis": settings})
    figure.update_xaxes(anchor="y3")
    whole_rounds(figure, rounds)
    return figure


def cost(rounds: Sequence[Record]) -> Figure | None:
    """Seconds and peak memory of each round, one below the other."""
    if not rounds:
        return None
    figure = blank(400, "round", "", hovermode="x unified")
    numbers = [record["round"] for record in rounds]
    figure.add_bar(
        x=numbers,
        y=[r["seconds"] for r in rounds],
        name="time",
        marker={"color": COLORS[0]},
        hovertemplate="%{y:.1f} s",
        showlegend=False,
    )
    words = {"process": "memory of the process", "cuda": "memory on the GPU"}
    for index, kind in enumerate(sorted({kind for r in rounds for kind in r.get("peak_memory", {})}), 1):
        sizes = [r.get("peak_memory", {}).get(kind, math.nan) / 1e9 for r in rounds]
        figure.add_scatter(
            x=numbers,
            y=sizes,
            name=words.get(kind, kind),
            yaxis="y2",
            line={"color": COLORS[index]},
            mode="lines+markers" if len(numbers) <= 30 else "lines",
            hovertemplate="%{y:.2f} GB",
        )
    figure.update_layout(
        yaxis={"domain": [0.56, 1], "title": {"text": "seconds"}, "automargin": True},
        yaxis2={"domain": [0, 0.44], "title": {"text": "peak memory, GB"}, "automargin": True, "rangemode": "tozero"},
    )
    figure.update_xaxes(anchor="y2")
    whole_rounds(figure, numbers)
    return figure
