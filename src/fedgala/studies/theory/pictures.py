"""Pictures of the checks: what rises with mutual information, where first order stops holding, what fails."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedgala.report.plots import COLORS
from fedgala.storage import write_atomically
from fedgala.studies.theory.rows import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INFORMATION = "mutual information of the domains, nats"
COVARIANCE = "tr Cov($g_i$, $g_j$)"


def draw(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Write the pictures into `folder`; none where matplotlib is missing."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return []
    written = []
    for name, (panels, size) in PICTURES.items():
        figure = Figure(figsize=size, layout="constrained")
        for axes, panel in zip(figure.subplots(*((2, 2) if len(panels) == 4 else (1, 3))).flat, panels, strict=True):
            panel(axes, rows)
            axes.grid(alpha=0.25)
            axes.spines[["top", "right"]].set_visible(False)
            axes.legend(fontsize=8, framealpha=0.8, edgecolor="none")
        path = folder / f"theory-{name}.png"
        write_atomically(path, lambda temporary, f=figure: f.savefig(temporary, format="png", dpi=90))  # type: ignore[misc]
        written.append(path)
    return written


def _chosen(rows: Sequence[Row], statement: str, case: str) -> list[Row]:
    return [row for row in rows if (row.statement, row.case) == (statement, case)]


def _branches(axes: "Axes", rows: Sequence[Row], formula: str) -> None:
    """Exact, first order and Monte Carlo against mutual information, for correlations of either sign."""
    signs = (("correlation ≥ 0", 1, COLORS[0], "o", 2.2), ("correlation < 0", -1, COLORS[1], "s", 1.1))
    for label, sign, color, marker, width in signs:
        part = sorted((r for r in rows if sign * r.at["correlation"] >= 0), key=lambda r: r.at["information"])
        where = [row.at["information"] for row in part]
        axes.plot(where, [row.exact or 0.0 for row in part], color=color, lw=width, label=f"exact, {label}")
        dashed = formula if sign > 0 else None
        axes.plot(where, [row.formula for row in part], color=color, lw=1.2, ls="--", alpha=0.8, label=dashed)
        errors = [4 * row.standard_error for row in part]
        points = "Monte Carlo ± 4 standard errors" if sign > 0 else None
        axes.errorbar(
            where, [row.estimate for row in part], errors, fmt=marker, ms=4, mfc="none", color=color, label=points
        )
    _information(axes)


def _information(axes: "Axes") -> None:
    """A scale of square roots, for information is about F rho^2 / 2 where domains are loosely tied."""
    axes.set_xlim(0, 17)
    axes.set_xscale("function", functions=(lambda v: np.sqrt(np.maximum(v, 0)), np.square))
    axes.set_xticks([0, 0.2, 1, 2, 4, 7, 10, 15])
    axes.set_xlabel(INFORMATION)


def positive_pairs(axes: "Axes", rows: Sequence[Row]) -> None:
    """Theorem 1 for positive pairs."""
    _branches(axes, _chosen(rows, "Theorem 1", "positive pairs"), "Lemma 2 (first order)")
    axes.set(title="Theorem 1: positive pairs", ylabel=COVARIANCE)


def negatives_of_an_anchor(axes: "Axes", rows: Sequence[Row]) -> None:
    """Theorem 1 for an anchor's negatives."""
    _branches(axes, _chosen(rows, "Theorem 1", "negatives of an anchor"), "Lemma 2 (first order)")
    axes.set(title="Theorem 1: negatives of one anchor", ylabel=COVARIANCE)


def negatives_of_a_batch(axes: "Axes", rows: Sequence[Row]) -> None:
    """Theorem 1 for all negatives of a batch."""
    _branches(axes, _chosen(rows, "Theorem 1", "negatives of a batch"), "Lemma 2 (first order): 0")
    axes.set(title="Theorem 1: all negatives of a batch", ylabel=COVARIANCE)


def differences(axes: "Axes", rows: Sequence[Row]) -> None:
    """Corollary 1."""
    _branches(axes, _chosen(rows, "Corollary 1", "positive pairs"), "Lemmas 2 and A1 (first order)")
    axes.set(title="Corollary 1: positive pairs", ylabel=r"tr Var($g_i - g_j$)")


def error_by_spread(axes: "Axes", rows: Sequence[Row]) -> None:
    """Lemma 2's error against the spread of the pre-activation."""
    for index, offset in enumerate((0, 1, 2)):
        part = _chosen(rows, "Lemma 2", f"shift w.B = {offset}")
        where, errors = [row.at["spread"] for row in part], [100 * (row.error or 0.0) for row in part]
        axes.plot(where, errors, color=COLORS[index], marker="os^"[index], ms=4, label=f"shift w·B = {offset}")
    axes.axhspan(-10, 10, color="gray", alpha=0.15, lw=0, label="within 10 %")
    axes.set_xscale("log")
    axes.set_xticks([0.05, 0.1, 0.2, 0.5, 1, 2, 4, 8], ["0.05", "0.1", "0.2", "0.5", "1", "2", "4", "8"])
    axes.minorticks_off()
    axes.set(title="Lemma 2, correlation 0.5", xlabel="standard deviation of the pre-activation w·d")
    axes.set_ylabel(f"relative error of {COVARIANCE}, %")


def error_by_correlation(axes: "Axes", rows: Sequence[Row]) -> None:
    """Lemma 2's error against the correlation of the domains."""
    for index, case in enumerate(("positive pairs", "negatives of an anchor")):
        part = [row for row in _chosen(rows, "Theorem 1", case) if row.error is not None]
        where, errors = [row.at["correlation"] for row in part], [100 * (row.error or 0.0) for row in part]
        axes.plot(where, errors, color=COLORS[index], marker="os"[index], ms=4, label=case)
    axes.axhspan(-10, 10, color="gray", alpha=0.15, lw=0, label="within 10 %")
    axes.set(title="Lemma 2, standard features", xlabel="correlation of corresponding features")
    axes.set_ylabel(f"relative error of {COVARIANCE}, %")


def series(axes: "Axes", rows: Sequence[Row]) -> None:
    """The error of the sigmoid's series under the expectation."""
    for index, spread in enumerate((0.5, 1, 2)):
        part = _chosen(rows, "Claim 1", f"series, spread {spread:g}")
        where, errors = [row.at["terms"] for row in part], [100 * abs(row.error or 0.0) for row in part]
        axes.plot(where, errors, color=COLORS[index], marker="os^"[index], ms=4, label=f"w·x spreads by {spread:g}")
    axes.set_yscale("log")
    axes.set(
        title=r"Claim 1: $E[\sigma^\prime(w \cdot x)]$ by its series",
        xlabel="terms of the series",
        ylabel="relative error, %",
    )


def profiles(axes: "Axes", rows: Sequence[Row]) -> None:
    """Theorem 1 where each feature has a correlation of its own."""
    together = [r for r in _chosen(rows, "Theorem 1", "positive pairs") if 0 <= r.at["correlation"] <= 0.95]
    axes.plot(
        [r.at["information"] for r in together], [r.exact or 0.0 for r in together], color=COLORS[0],
        label="all features tied equally",
    )  # fmt: skip
    part = _chosen(rows, "Theorem 1", "each feature its own correlation")
    where, values = [row.at["information"] for row in part], [row.estimate for row in part]
    axes.scatter(where, values, 22, color=COLORS[1], marker="D", label="each feature its own correlation", zorder=3)
    axes.text(where[0] * 1.12, values[0] - 0.02, "one feature at 0.9999,\nthe others at 0", fontsize=8)
    axes.set_ylim(0, 0.9)
    _information(axes)
    axes.set(title="Theorem 1: more information,\nless covariance", ylabel=COVARIANCE)


def broken(axes: "Axes", rows: Sequence[Row]) -> None:
    """What falls with mutual information: augmentations that are not shared, and single entries."""
    sweeps = (
        ("Theorem 1", "each client its own augmentation", "tr Cov, each client its own zoom"),
        ("Claim 1", "least entry of Cov", "ten times the least entry of Cov, shared augmentation"),
    )
    for index, (statement, case, label) in enumerate(sweeps):
        part, scale = _chosen(rows, statement, case), (1, 10)[index]
        where = [row.at["information"] for row in part]
        axes.plot(where, [scale * (row.exact or 0.0) for row in part], color=COLORS[index], label=label)
        values, errors = [scale * row.estimate for row in part], [4 * scale * row.standard_error for row in part]
        axes.errorbar(where, values, errors, fmt="os"[index], ms=4, mfc="none", color=COLORS[index])
    _information(axes)
    axes.set(title="Theorem 1 without its conditions,\nand entry by entry", ylabel="covariance of gradients")
    axes.set_ylim(top=0.06)


def removal(axes: "Axes", rows: Sequence[Row]) -> None:
    """Proposition 1: how often it holds."""
    cases = ("agreement with the mean", "unrelated partners leave", "a pair leaves")
    labels = (
        r"$\langle$mean $g_j$, $g_{est}\rangle$ grows",
        "tr Cov grows, unrelated partner",
        "tr Cov grows, its own partner",
    )
    for index, (case, label) in enumerate(zip(cases, labels, strict=True)):
        part = _chosen(rows, "Proposition 1", f"{case}, noise 2")
        values, errors = [100 * row.estimate for row in part], [400 * row.standard_error for row in part]
        where = [row.at["correlation"] for row in part]
        axes.errorbar(where, values, errors, fmt="os^"[index] + "-", ms=4, capsize=2, color=COLORS[index], label=label)
    axes.axhline(50, color="gray", lw=1, ls=":")
    axes.set(title="Proposition 1: the gradient that\nis not aligned is left out", ylim=(0, 105))
    axes.set(xlabel="correlation of gradients that are partners", ylabel="share of draws, %")


PICTURES = {
    "theorem": ((positive_pairs, negatives_of_an_anchor, negatives_of_a_batch, differences), (10, 7.6)),
    "approximations": ((error_by_spread, error_by_correlation, series), (12.5, 4)),
    "limits": ((profiles, broken, removal), (12.5, 4.2)),
}
