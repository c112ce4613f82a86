"""Pictures of a run: how it went, and what its clients saw. Without matplotlib a run is complete but for these."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fedgala import seeds
from fedgala.config import RunConfig
from fedgala.data import augment
from fedgala.data.domain import DomainData
from fedgala.observe import Observer
from fedgala.records import Record
from fedgala.run import Run
from fedgala.storage import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe and Ito
PICTURES = 6  # a row of samples
SHOWN = 6  # clients whose samples are shown
MANY = 40  # clients that no longer have room for a name each


def draw_run(run: Run, clients: Sequence[DomainData], target: DomainData | None, watcher: Observer) -> None:
    """Write the curves, who holds what, and what some clients and the unseen domain look like, into ``plots/``."""
    if draw_curves(run, watcher):
        from matplotlib.figure import Figure

        shown = [*clients[:SHOWN], *([target] if target else [])]
        with plain_names():
            save(clients_figure(Figure(layout="constrained"), clients), run.folder / "plots" / "clients.png")
            save(views_figure(Figure(layout="constrained"), run.config, shown), run.folder / "plots" / "views.png")


def draw_curves(run: Run, watcher: Observer) -> Path | None:
    """Write ``plots/training.png``; None, and a note, where matplotlib is missing."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        watcher.note("no plots: matplotlib is not installed")
        return None
    path = run.folder / "plots" / "training.png"
    with plain_names():
        save(training_figure(Figure(figsize=(10, 6.4), layout="constrained"), run), path)
    return path


@contextmanager
def plain_names() -> Iterator[None]:
    """Draw names as they are: dollars enclose no formula, and what the font lacks is a box without a warning."""
    from matplotlib import rc_context

    with rc_context({"text.parse_math": False}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        yield


def save(figure: "Figure", path: Path) -> None:
    """Write a figure as PNG, whole or not at all."""
    write_atomically(path, lambda temporary: figure.savefig(temporary, format="png", dpi=120))


def training_figure(figure: "Figure", run: Run) -> "Figure":
    """Loss, share in conflict, client weights and accuracy over the rounds."""
    rounds, evaluations = run.records.read("round"), run.records.read("evaluation")
    panels = figure.subplots(2, 2).flat
    _per_client(next(panels), rounds, "loss", "training loss")
    _per_client(next(panels), rounds, "conflict", "share of gradients in conflict", share=True)
    _per_client(next(panels), rounds, "weight", "client weight")
    _accuracy(next(panels), evaluations)
    figure.suptitle(f"{run.folder.name}: {run.config.federation.rounds} rounds")
    return figure


def _per_client(axes: "Axes", rounds: Sequence[Record], key: str, label: str, share: bool = False) -> None:
    names = sorted({name for record in rounds for name in record["clients"]})
    for index, name in enumerate(names[: len(COLORS)]):
        known = [record for record in rounds if key in record["clients"].get(name, {})]
        values = [record["clients"][name][key] for record in known]
        axes.plot([record["round"] for record in known], values, label=name, **_style(index))
    if not any(key in client for record in rounds for client in record["clients"].values()):
        axes.text(0.5, 0.5, "local alignment was off", transform=axes.transAxes, ha="center", color="gray")
    _finish(axes, label, (0, 1) if share else None)


def _accuracy(axes: "Axes", evaluations: Sequence[Record]) -> None:
    known = [record for record in evaluations if "probe" in record]
    index = 0
    for part in ("encoder", "projector"):
        for ratio in known[0]["probe"][part] if known else ():
            values = torch.tensor([record["probe"][part][ratio] for record in known]) * 100
            rounds = [record["round"] for record in known]
            label = f"{part}, {float(ratio):.0%} of the labels"
            spread = values.std(1, correction=0)
            axes.errorbar(rounds, values.mean(1), spread, label=label, capsize=2, **_style(index))
            index += 1
    if known:
        axes.plot(
            [r["round"] for r in known], [r["knn"] * 100 for r in known], label="kNN", **{**_style(index), "ls": ":"}
        )
    else:
        ranks = [record["monitor"]["effective_rank"] for record in evaluations]
        axes.plot([record["round"] for record in evaluations], ranks, label="encoder", **_style(0))
    _finish(axes, "accuracy on the unseen domain, %" if known else "effective rank of the features")


def _style(index: int) -> dict[str, Any]:
    return {"color": COLORS[index % len(COLORS)], "marker": "os^Dv"[index % 5], "ms": 3.5, "lw": 1.4}


def _finish(axes: "Axes", label: str, limits: tuple[float, float] | None = None) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set(xlabel="round", ylabel=label)
    if limits:
        axes.set_ylim(*limits)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8, framealpha=0.6, edgecolor="none")


def clients_figure(figure: "Figure", clients: Sequence[DomainData]) -> "Figure":
    """Who holds what: a bar per client, in pictures, with a stripe per class where there are labels."""
    figure.set_size_inches(7, min(1.2 + 0.28 * len(clients), 12))
    axes = figure.subplots()
    classes = 1 + max((int(client.labels.max()) for client in clients if client.labels is not None), default=0)
    counts = torch.stack([_class_counts(client, classes) for client in clients])
    edge = "white" if len(clients) <= MANY else "none"
    for label in range(classes):
        left = counts[:, :label].sum(1)
        color = COLORS[label % len(COLORS)]
        axes.barh(range(len(clients)), counts[:, label], 0.85, left, color=color, edgecolor=edge, linewidth=0.5)
    few = len(clients) <= MANY
    axes.set(xlabel="pictures, a stripe per class" if classes > 1 else "pictures", ylabel="" if few else "client")
    if few:
        axes.set_yticks(range(len(clients)), [client.name for client in clients], fontsize=8)
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _class_counts(client: DomainData, classes: int) -> Tensor:
    labels = torch.zeros(len(client), dtype=torch.int64) if client.labels is None else client.labels
    return labels.bincount(minlength=classes)


def views_figure(figure: "Figure", config: RunConfig, domains: Sequence[DomainData]) -> "Figure":
    """For each domain a row of pictures, and under it the two views that training might see of each."""
    figure.set_size_inches(1.1 * PICTURES + 1, 3.5 * len(domains) + 0.3)
    grid = figure.subplots(3 * len(domains), PICTURES, squeeze=False)
    for row, domain in enumerate(domains):
        some, first, second = sample_views(config, domain)
        _row(grid[3 * row], [_picture(some, i) for i in range(len(some))], domain.name)
        _row(grid[3 * row + 1], list(first), "a view")
        _row(grid[3 * row + 2], list(second), "another view")
    return figure


def sample_views(config: RunConfig, domain: DomainData) -> tuple[DomainData, Tensor, Tensor]:
    """Some pictures of a domain, and two views of each as training draws them: (n, 3, crop, crop) in [0, 1]."""
    views = augment.Views(**config.views.to_dict())
    chance = seeds.generator(config.seed, "pictures", domain.name)
    some = domain.take(torch.randperm(len(domain), generator=chance)[:PICTURES]).to(torch.device("cpu"))
    both = augment.apply(some.pictures(), augment.draw(some.sizes.repeat(2, 1), views, chance), views.crop)
    return some, both[: len(some)], both[len(some) :]


def _picture(data: DomainData, index: int) -> Tensor:
    return data.picture(index).float() / 255


def _row(cells: Any, pictures: Sequence[Tensor], label: str) -> None:
    for axes in cells:
        axes.set(xticks=[], yticks=[])
    for axes, picture in zip(cells, pictures, strict=False):
        axes.imshow(picture.permute(1, 2, 0).numpy())
    cells[0].set_ylabel(label, fontsize=8)
