"""Every table and figure of the paper: a function from the base configuration to variants, and how they are shown.

`full` is FedGaLA as it is; it is measured more often and at more shares of labels than other rows, so that one run
serves the tables and the figures.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from fedgala.config import RunConfig, merge
from fedgala.studies.accuracy import accuracy_exhibit
from fedgala.studies.charts import Chart, by_ratio, by_round, conflicts, final
from fedgala.studies.plan import Variant
from fedgala.studies.shift_chart import KIND, shift_exhibit
from fedgala.studies.study import Study

RATIOS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)  # of Figure 3c
DOMAINS = ("PACS", "DomainNet-20", "Office-Home", "TerraIncognita")
OURS, BASELINE = "FedGaLA (ours)", "FedSimCLR"
NO_GLOBAL: dict[str, Any] = {"server": {"rule": "fedavg"}}
NO_LOCAL: dict[str, Any] = {"local": {"rule": "none"}}


def full(base: RunConfig, label: str = OURS, over: dict[str, Any] | None = None, **at: float | str) -> Variant:
    """FedGaLA, or with `over` a variation of it, at some place of a figure."""
    ratios = sorted({*base.probe.ratios, *RATIOS})
    measured = {"probe": {"every": base.probe.every or max(1, base.federation.rounds // 20), "ratios": ratios}}
    return Variant(label, "fedgala", merge(measured, over or {}), at)


def table1(base: RunConfig) -> list[Variant]:
    """The paper's baselines."""
    baselines = ("FedEMA", "FedBYOL", "FedMoCo", "FedSimSiam", BASELINE)
    return [*(Variant(label, label.lower()) for label in baselines), full(base)]


def table2(base: RunConfig) -> list[Variant]:
    """Centralised methods: one client that holds all sources."""
    return [*(Variant(label, label.lower()) for label in ("BYOL", "MoCo", "SimCLR", "AdCo", "DARLING")), full(base)]


def table3(base: RunConfig) -> list[Variant]:
    """FedGaLA on other self-supervised methods."""
    return [
        Variant("FedMoCo", "fedmoco"),
        Variant("FedGaLA w/ MoCo", "fedgala-moco"),
        Variant("FedBYOL", "fedbyol"),
        Variant("FedGaLA w/ BYOL", "fedgala-byol"),
        Variant(BASELINE, "fedsimclr"),
        full(base, "FedGaLA w/ SimCLR"),
    ]


def table4(base: RunConfig) -> list[Variant]:
    """Without global alignment, without local alignment, without both, which is FedSimCLR."""
    return [
        full(base, "FedGaLA"),
        Variant("w/o GA", "fedgala", NO_GLOBAL),
        Variant("w/o LA", "fedgala", NO_LOCAL),
        Variant("w/o GA & LA", "fedsimclr"),
    ]


def every_epochs(base: RunConfig, epochs: int) -> dict[str, Any]:
    """Aggregation after so many local epochs, for nine times as many local epochs as there are rounds."""
    total = 9 * base.federation.rounds
    every = {"probe": {"every": max(1, total // 9)}} if epochs == 1 else {}  # Figure 3d looks at that run on its way
    return merge(every, {"federation": {"epochs": epochs, "rounds": max(1, round(total / epochs))}})


def table5(base: RunConfig) -> list[Variant]:
    """How often to communicate: 900 local epochs, where the base has 100 rounds."""
    return [full(base, f"E={epochs}", every_epochs(base, epochs)) for epochs in (1, 5, 7, 9)]


def table6(base: RunConfig) -> list[Variant]:
    """Conflicting gradients scaled down and not discarded."""
    factors = (0.001, 0.01, 0.1)
    reweighted = [{"local": {"rule": "reweight", "factor": factor}} for factor in factors]
    rows = [Variant(f"RF: {factor:g}", "fedgala", it) for factor, it in zip(factors, reweighted, strict=True)]
    return [*rows, full(base)]


def table7(base: RunConfig) -> list[Variant]:
    """With a term for the weights' length, or for their distance from the global model."""
    terms = (("L2", "λ", "l2"), ("FedProx", "μ", "proximal"))
    return [
        Variant(f"FedGaLA+{name} ({symbol}={value:g})", "fedgala", {"federation": {setting: value}})
        for name, symbol, setting in terms
        for value in (0.001, 0.01)
    ] + [full(base)]


def demo(base: RunConfig) -> list[Variant]:
    """The paper's rule beside the default one and plain averaging."""
    return [
        Variant("FedGaLA", "fedgala"),
        Variant("FedGaLA, discarding (the paper's rule)", "fedgala", {"local": {"rule": "discard"}}),
        Variant("FedAvg + SimCLR", "fedsimclr"),
    ]


def figure2a(base: RunConfig) -> list[Variant]:
    """FedGaLA; its gradients are measured after training."""
    return [full(base)]


def figure2b(base: RunConfig) -> list[Variant]:
    """One local epoch a round, threshold 0."""
    return [full(base, "FedGaLA, E = 1", {"federation": {"epochs": 1}, "local": {"threshold": 0}})]


def figure2c(base: RunConfig) -> list[Variant]:
    """Batches of four sizes."""
    return [full(base, f"B = {size}", {"federation": {"batch_size": size}}, x=size) for size in (32, 64, 128, 256)]


def figure2d(base: RunConfig) -> list[Variant]:
    """Three thresholds of discarding by three numbers of local epochs."""
    return [
        full(
            base,
            f"τ = {threshold:g}, E = {epochs}",
            {"local": {"rule": "discard", "threshold": threshold}, "federation": {"epochs": epochs}},
            x=epochs,
            curve=f"τ = {threshold:g}",
        )
        for threshold in (-0.1, 0.0, 0.1)
        for epochs in (5, 7, 9)
    ]


def figure3a(base: RunConfig) -> list[Variant]:
    """Iterations of global alignment; none is FedAvg."""
    return [full(base, f"{count} iterations", {"server": {"iterations": count}}, x=count) for count in range(6)]


def figure3b(base: RunConfig) -> list[Variant]:
    """Accuracy on the way."""
    return [full(base)]


def figure3d(base: RunConfig) -> list[Variant]:
    """One local epoch a round and nine times the rounds: the first row of Table 5, looked at on its way."""
    return [full(base, "FedGaLA, E = 1", every_epochs(base, 1))]


ACCURACY = "accuracy on the unseen domain with 10 % of its labels, %"
CHARTS = {
    chart.name: chart
    for chart in (
        Chart("figure2b", "round", "gradients that do not agree with the reference, %", conflicts),
        Chart("figure2c", "pictures in a batch, B", ACCURACY, final(0.1), ticks=True),
        Chart("figure2d", "local epochs a round, E", ACCURACY, final(0.1), ticks=True),
        Chart("figure3a", "iterations of global alignment", ACCURACY, final(0.1), ticks=True),
        Chart("figure3b", "round", ACCURACY, by_round(0.1), shown=21),
        Chart("figure3c", "labels used by the probe, %", "accuracy on the unseen domain, %", by_ratio),
        Chart("figure3d", "round, of one local epoch", ACCURACY, by_round(0.1, start=1)),
    )
}


def _table(name: str, ratios: Sequence[float] = (0.1,), compare: Sequence[tuple[str, str]] = ()) -> Any:
    return partial(accuracy_exhibit, table=name, ratios=ratios, compare=compare)


def _figure(title: str, variants: Any, name: str) -> Study:
    return Study(title, variants, CHARTS[name].exhibit, one_target=True)


STUDIES: dict[str, Study] = {
    "table1": Study(
        "FedGaLA beside federated self-supervised methods, 10 % and 30 % of the labels",
        table1, _table("table1", (0.1, 0.3), [(OURS, BASELINE)]), DOMAINS,
    ),
    "table2": Study("FedGaLA beside centralised methods", table2, _table("table2"), DOMAINS[:2]),
    "table3": Study(
        "FedGaLA on MoCo, BYOL and SimCLR", table3,
        _table("table3", compare=[
            ("FedGaLA w/ MoCo", "FedMoCo"), ("FedGaLA w/ BYOL", "FedBYOL"), ("FedGaLA w/ SimCLR", BASELINE)
        ]),
    ),
    "table4": Study(
        "Ablation: without global, local, both alignments", table4,
        _table("table4", compare=[("FedGaLA", "w/o GA & LA")]),
    ),
    "table5": Study("Communication frequency over 900 local epochs", table5, _table("table5"), one_target=True),
    "table6": Study("Re-weighting conflicting gradients", table6, _table("table6")),
    "table7": Study("With L2 and FedProx regularizers", table7, _table("table7"), DOMAINS),
    "figure2a": Study(
        "Covariance of gradients against mutual information of domains", figure2a, shift_exhibit,
        one_target=True, measures=(KIND,),
    ),
    "figure2b": _figure("Share of discarded gradients over the rounds", figure2b, "figure2b"),
    "figure2c": _figure("Batch size", figure2c, "figure2c"),
    "figure2d": _figure("Threshold and local epochs", figure2d, "figure2d"),
    "figure3a": _figure("Iterations of global alignment", figure3a, "figure3a"),
    "figure3b": _figure("Stability of training", figure3b, "figure3b"),
    "figure3c": _figure("Share of labels", figure3b, "figure3c"),
    "figure3d": _figure("Communication rounds", figure3d, "figure3d"),
    "demo": Study(
        "The demonstration on the embedded data set", demo,
        partial(_table("demo", compare=[("FedGaLA", "FedAvg + SimCLR")]), untrained=True), ("shapes",),
    ),
}  # fmt: skip
