"""What alignment did, as heat maps over units, clients and rounds, and how gradients and information go together."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from plotly.graph_objects import Figure, Frame, Heatmap

from fedgala.records import Record
from fedgala.report.figures import COLORS, NAMED, SIZES, bar, blank, whole_rounds

SIGNED = [[0, "#B2500A"], [0.5, "#F2F2F2"], [1, "#0072B2"]]  # against, neither, with
MAPS = 60  # rounds of cosines that a page holds, evenly spread
MEAN = "mean of the clients"


def conflicts(rounds: Sequence[Record], units: Sequence[str]) -> Figure | None:
    """The share in conflict of each unit over the rounds: the mean over the clients, or one of them."""
    known = [r for r in rounds if any(c.get("conflicts") for c in r["clients"].values())]
    if not known:
        return None
    names = sorted({n for r in known for n, c in r["clients"].items() if c.get("conflicts")})
    choices: dict[str, list[list[float | None]]] = {MEAN: _matrix(known, names, len(units))}
    if 1 < len(names) <= NAMED:
        choices |= {name: _matrix(known, [name], len(units)) for name in names}
    figure = blank(150 + 17 * max(len(units), 3), "round", "", showlegend=False)
    for name, values in choices.items():
        figure.add_heatmap(
            z=values,
            x=[r["round"] for r in known],
            y=list(units),
            zmin=0,
            zmax=1,
            colorscale=SIZES,
            name=name,
            visible=name == MEAN,
            hovertemplate="%{y}<br>round %{x}: %{z:.0%}<extra>%{fullData.name}</extra>",
            colorbar=bar("share in conflict", ".0%"),
        )
    if len(choices) > 1:
        figure.update_layout(updatemenus=[_menu(list(choices))], margin={"t": 44})
    figure.update_yaxes(autorange="reversed", dtick=1, tickfont={"size": 10})
    whole_rounds(figure, [r["round"] for r in known])
    return figure


def _matrix(rounds: Sequence[Record], names: Sequence[str], count: int) -> list[list[float | None]]:
    """(units, rounds) the mean over those of the clients that took part; None where none did."""
    columns: list[list[float | None]] = []
    for record in rounds:
        rows = [record["clients"][n]["conflicts"] for n in names if record["clients"].get(n, {}).get("conflicts")]
        columns.append([round(fmean(column), 4) for column in zip(*rows, strict=True)] or [None] * count)
    return [list(row) for row in zip(*columns, strict=True)]


def _menu(names: Sequence[str]) -> dict[str, Any]:
    buttons = [
        {"label": name, "method": "restyle", "args": [{"visible": [other == name for other in names]}]}
        for name in names
    ]
    return {"buttons": buttons, "x": 0, "xanchor": "left", "y": 1, "yanchor": "bottom", "pad": {"b": 8}}


def cosines(rounds: Sequence[Record]) -> Figure | None:
    """The cosines between the clients' updates, a matrix per round with a slider."""
    known = [r for r in rounds if r.get("cosines") and len(r["cosines"]) > 1]
    if not known:
        return None
    some = known if len(known) <= MAPS else [known[round(i * (len(known) - 1) / (MAPS - 1))] for i in range(MAPS)]
    frames = [Frame(data=[_cosines(record)], name=str(record["round"])) for record in some]
    side = max(320, min(640, 60 + 34 * max(len(r["cosines"]) for r in some)))
    figure = blank(side + 120, "", "", showlegend=False)
    figure.add_trace(_cosines(some[-1]))
    figure.frames = frames
    steps = [
        {
            "label": frame.name,
            "method": "animate",
            "args": [[frame.name], {"mode": "immediate", "frame": {"duration": 0}}],
        }
        for frame in frames
    ]
    shown = {"prefix": "round ", "font": {"size": 13}}
    figure.update_layout(
        sliders=[{"steps": steps, "active": len(steps) - 1, "currentvalue": shown, "pad": {"t": 36, "b": 6}}]
    )
    figure.update_yaxes(autorange="reversed")
    return figure


def _cosines(record: Record) -> Heatmap:
    names = sorted(set(record["clients"]) - set(record.get("rejected", ())))
    few = len(names) <= 8
    return Heatmap(
        z=record["cosines"],
        x=names,
        y=names,
        zmin=-1,
        zmax=1,
        colorscale=SIGNED,
        colorbar=bar("cosine", ".1f"),
        texttemplate="%{z:.2f}" if few else None,
        hovertemplate="%{y} and %{x}: %{z:.3f}<extra></extra>",
    )


def shift(records: Sequence[Record]) -> Figure | None:
    """The correlation of two domains' gradients against the information they share, as measured last."""
    if not records:
        return None
    rows = records[-1]["domains"]
    figure = blank(420, "mutual information of the features, nats", "correlation of the gradients", showlegend=False)
    figure.add_scatter(
        x=[row["information"] for row in rows],
        y=[row["correlation"] for row in rows],
        mode="markers+text",
        text=[" and ".join(row["pair"]) for row in rows],
        textposition="top center",
        marker={"size": 9, "color": COLORS[0]},
        error_y={"array": [row["correlation_error"] for row in rows], "thickness": 1, "width": 3},
        hovertemplate="%{text}<br>information %{x:.3f} nats<br>"
        "correlation %{y:.3f} ± %{error_y.array:.3f}<extra></extra>",
    )
    return figure
