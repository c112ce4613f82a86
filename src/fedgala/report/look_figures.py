"""Figures of what an encoder makes of the unseen domain: which classes it tells apart, and where pictures lie."""

from collections.abc import Sequence

import torch
from plotly.graph_objects import Figure
from torch import Tensor

from fedgala.report.figures import COLORS, SIZES, SYMBOLS, bar, blank
from fedgala.report.look import BANK, Look, principal, spread

LEGEND = 24  # entries beyond which a legend says less than hovering


def confusion(look: Look) -> Figure | None:
    """Of each true class, the shares of the answers, over all splits of the first share of labels."""
    if not look.confusion:
        return None
    counts = next(iter(look.confusion.values())).sum(0)
    names, shares = list(look.classes), counts / counts.sum(1, keepdim=True).clamp(min=1)
    few = len(names) <= 12
    figure = blank(max(380, min(120 + 34 * len(names), 900)), "the probe's answer", "true class", showlegend=False)
    figure.add_heatmap(
        z=_rounded(shares * 100, 1),
        x=names,
        y=names,
        customdata=counts.tolist(),
        zmin=0,
        zmax=100,
        colorscale=SIZES,
        texttemplate="%{z:.0f}" if few else None,
        colorbar=bar("% of the true class", ".0f"),
        hovertemplate="%{y} taken for %{x}<br>%{z:.1f} %, %{customdata} answers<extra></extra>",
    )
    figure.update_yaxes(autorange="reversed", dtick=1 if few else None)
    figure.update_xaxes(dtick=1 if few else None)
    return figure


def per_class(look: Look) -> Figure | None:
    """Accuracy of each class with its spread over the splits, for each share of labels."""
    if not look.confusion:
        return None
    names = list(look.classes)
    figure = blank(
        max(380, min(110 + 36 * len(names), 1200)),
        "right answers, %",
        "",
        xaxis={"range": [0, 100], "title": {"text": "right answers, %"}},
    )
    for index, (ratio, tables) in enumerate(look.confusion.items()):
        share = 100 * tables.diagonal(dim1=1, dim2=2) / tables.sum(2).clamp(min=1)  # (S, C)
        figure.add_bar(
            y=names,
            x=_rounded(share.mean(0), 1),
            orientation="h",
            name=f"{ratio:.0%} of the labels",
            marker={"color": COLORS[index % len(COLORS)]},
            error_x={"array": _rounded(share.std(0, correction=0), 1), "thickness": 1, "width": 3, "color": "#888888"},
            hovertemplate="%{y}: %{x:.1f} ± %{error_x.array:.1f} %",
        )
    figure.update_yaxes(autorange="reversed", dtick=1 if len(names) <= 30 else None)
    return figure


def map_by_class(look: Look) -> Figure | None:
    """The unseen domain's pictures, a colour and symbol for each class."""
    if look.target is None or look.target.labels is None:
        return None
    shown = spread(len(look.target), BANK)
    labels = look.target.labels[shown]
    return _map(look.features[look.target.name], shown, labels, look.classes, "picture")


def map_by_domain(look: Look) -> Figure:
    """Pictures of all domains, a colour and symbol for each domain."""
    features = [look.features[domain.name] for domain in look.domains]
    some = [part[spread(len(part), BANK // 2)] for part in features]
    labels = torch.cat([torch.full((len(part),), index) for index, part in enumerate(some)])
    together = torch.cat(some)
    names = [f"{d.name} (unseen)" if d is look.target else d.name for d in look.domains]
    return _map(together, torch.arange(len(together)), labels, names, "")


def _map(features: Tensor, shown: Tensor, labels: Tensor, names: Sequence[str], what: str) -> Figure:
    places, shares = principal(features)
    places = places[shown]
    first, second = (f"component {i + 1} ({share:.0%} of the variance)" for i, share in enumerate(shares.tolist()))
    present = sorted(set(labels.tolist()))
    figure = blank(520, first, second, showlegend=len(present) <= LEGEND)
    for index in present:
        members = labels == index
        hover = f"{names[index]}<br>{what} %{{customdata}}" if what else names[index]
        figure.add_scatter(
            x=_rounded(places[members, 0], 3),
            y=_rounded(places[members, 1], 3),
            mode="markers",
            name=names[index],
            marker={
                "color": COLORS[index % len(COLORS)],
                "symbol": SYMBOLS[index % len(SYMBOLS)],
                "size": 6,
                "opacity": 0.75,
            },
            customdata=shown[members].tolist(),
            hovertemplate=hover + "<extra></extra>",
        )
    figure.update_xaxes(zeroline=False)
    figure.update_yaxes(zeroline=False)
    return figure


def _rounded(values: Tensor, digits: int) -> list[object]:
    """As plain numbers with few digits: what a page holds should be as small as what it shows."""
    found: list[object] = values.double().mul(10**digits).round().div(10**digits).tolist()
    return found
