"""The picture and table of Figure 2a from the records that `shift` leaves: pairs of domains by what they share."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from fedgala.report.plots import COLORS
from fedgala.report.tables import Table, cell
from fedgala.studies.charts import finish
from fedgala.studies.exhibit import Exhibit
from fedgala.studies.outcome import Outcome
from fedgala.studies.paper import figure_texts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KIND = "shift"  # of the record, as `shift` writes it: reading it needs no torch
X = "mutual information of corresponding pictures, nats"
COLUMNS = {  # of the table: number in the records, decimals
    "mutual information, nats": ("information", 3),
    "covariance": ("covariance", 3),
    "its standard error": ("covariance_error", 3),
    "as a correlation": ("correlation", 3),
    "cosine of mean gradients": ("cosine_of_means", 3),
}
Rows = Mapping[str, Sequence[Mapping[str, float]]]  # by pair of domains, one for each run


def shift_exhibit(outcome: Outcome) -> Exhibit:
    """Covariance of gradients, and cosine of mean gradients, against mutual information."""
    rows = _rows(outcome)
    text = figure_texts()["figure2a"]
    table_rows = [
        [pair, *(_cell([run[key] for run in runs], d) for key, d in COLUMNS.values())] for pair, runs in rows.items()
    ]
    runs = max((len(of_pair) for of_pair in rows.values()), default=0)
    caption = (
        f"Gradients of pairs of domains of {outcome.data} at the global model after the last round, unseen: "
        f"{', '.join(outcome.targets)} (marked *); pictures correspond by class; mean ± standard deviation over {runs} "
        f"run{'' if runs == 1 else 's'}."
    )
    notes = [*_orders(rows), f"The paper (PACS): {text.says}."]
    facts = [
        {"study": outcome.study, "data": outcome.data, "pair": pair, "run": number, **run}
        for pair, of_pair in rows.items()
        for number, run in enumerate(of_pair)
    ]
    return Exhibit([Table(caption, ["pair", *COLUMNS], table_rows, notes)], facts, lambda figure: _draw(figure, rows))


def _rows(outcome: Outcome) -> dict[str, list[dict[str, float]]]:
    found: dict[str, list[dict[str, float]]] = {}
    for entry in outcome.entries:
        for record in entry.of(KIND)[-1:]:
            for row in record["domains"]:
                pair = " / ".join(f"{name}*" if name == entry.target else name for name in row["pair"])
                found.setdefault(pair, []).append({k: v for k, v in row.items() if k != "pair"})
    return found


def _cell(values: Sequence[float], decimals: int) -> str:
    if len(values) < 2 or decimals != 1:
        spread = f" ± {stdev(values):.{decimals}g}" if len(values) > 1 else ""
        return f"{fmean(values):.{decimals}g}{spread}"
    return cell(values, 1)


def _orders(rows: Rows) -> list[str]:
    """How often more information does go with more covariance, pair of pairs by pair of pairs."""
    lines = []
    for name, key in (("covariance", "covariance"), ("cosine of the mean gradients", "cosine_of_means")):
        points = [
            (fmean(run["information"] for run in runs), fmean(run[key] for run in runs)) for runs in rows.values()
        ]
        pairs = list(combinations(points, 2))
        if pairs:
            right = sum((a[0] - b[0]) * (a[1] - b[1]) > 0 for a, b in pairs)
            lines.append(
                f"More information goes with a larger {name} in {right} of {len(pairs)} comparisons of two pairs."
            )
    return lines


def _draw(figure: "Figure", rows: Rows) -> None:
    figure.set_size_inches(10, 5)
    first, second = figure.subplots(1, 2)
    _scatter(first, rows, "covariance", "covariance_error")
    _scatter(second, rows, "cosine_of_means", None)
    finish(first, X, "tr Cov($g_i$, $g_j$) over corresponding batches", "what Theorem 1 speaks of")
    finish(second, X, "cosine of the mean gradients", "what alignment looks at")
    if rows:
        for axes in (first, second):
            axes.get_legend().remove()
        handles, labels = second.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8, edgecolor="none")


def _scatter(axes: "Axes", rows: Rows, key: str, error: str | None) -> None:
    for index, (pair, runs) in enumerate(rows.items()):
        for number, run in enumerate(runs):
            axes.errorbar(
                run["information"], run[key], run[error] if error else None, fmt="os^Dvp"[index % 6], ms=7, capsize=3,
                color=COLORS[index % len(COLORS)], label=None if number else pair,
            )  # fmt: skip
    if error and rows:
        axes.axhline(0, color="gray", lw=0.8)
