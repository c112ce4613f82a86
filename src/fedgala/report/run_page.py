"""The page of one run: from its folder alone, and from its pictures where they are at hand."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

import torch
from plotly.graph_objects import Figure

from fedgala.client import Trainer
from fedgala.errors import FedgalaError
from fedgala.observe import Observer
from fedgala.records import Record
from fedgala.report import alignment_figures, configuration, figures, look_figures, strips
from fedgala.report.look import BANK, Look, look
from fedgala.report.page import Card, Part, write_page
from fedgala.report.tables import cell
from fedgala.run import Run


def write_run_page(run: Run, path: Path, data: str | None, device: str, watcher: Observer) -> None:
    """Write the page of `run`; `data` says where its pictures are now, if they have moved."""
    rounds, evaluations = run.records.read("round"), run.records.read("evaluation")
    parts = [_settings(run), _training(run, rounds, evaluations), *_alignment(run, rounds)]
    parts += _shift(run.records.read("shift"))
    try:
        parts += _pictures(look(run, data, device, watcher))
    except FedgalaError as error:
        watcher.note(f"the page is without pictures: {error}")
        parts.append(Part("Pictures", f"This page is without what needs the pictures and the encoder: {error}"))
    state = "finished" if run.finished else f"{len(rounds)} of {run.config.federation.rounds} rounds done"
    unseen = f", unseen domain {run.config.data.target}" if run.config.data.target else ""
    subtitle = f"{run.config.data.path}{unseen}, seed {run.config.seed}, {state}"
    write_page(
        path,
        run.folder.name,
        subtitle,
        _tiles(rounds, evaluations),
        [part for part in parts if part.cards or part.text],
    )


def _tiles(rounds: Sequence[Record], evaluations: Sequence[Record]) -> Mapping[str, str]:
    """The numbers to see first."""
    tiles = {}
    if evaluations and "probe" in evaluations[-1]:
        first, last = evaluations[0], evaluations[-1]
        for ratio, values in last["probe"]["encoder"].items():
            before = f" (round {first['round']}: {cell(first['probe']['encoder'][ratio])})" if last is not first else ""
            tiles[f"right answers, probe on {float(ratio):.0%} of the labels{before}"] = f"{cell(values)} %"
        tiles["right answers, kNN"] = f"{100 * last['knn']:.1f} %"
    elif evaluations:
        tiles["effective rank of the features"] = f"{evaluations[-1]['monitor']['effective_rank']:.1f}"
    if rounds:
        tiles[f"loss after {len(rounds)} rounds (first: {rounds[0]['loss']:.3f})"] = f"{rounds[-1]['loss']:.3f}"
        tiles[f"seconds a round, {len(rounds[-1]['clients'])} clients"] = f"{fmean(r['seconds'] for r in rounds):.1f}"
    return tiles


def _settings(run: Run) -> Part:
    text = "What differs from the defaults, which are the paper's."
    return Part("Configuration", text, [Card("Settings", configuration.tables(run.config), wide=True)])


def _training(run: Run, rounds: Sequence[Record], evaluations: Sequence[Record]) -> Part:
    probes = run.config.probe
    cards = {
        "Training loss": (figures.loss(rounds), "A client's mean over its steps of the round."),
        "Accuracy on the unseen domain": (
            figures.accuracy(evaluations),
            f"Mean and standard deviation over {probes.splits} random splits; kNN has no spread.",
        ),
        "Monitors, which need no labels": (
            figures.monitors(evaluations),
            "Alignment: distance of two views of a picture, small is good. Uniformity: spread over the sphere, low is "
            "good, near 0 is collapse. Effective rank: directions that the features use.",
        ),
        "Time and memory": (figures.cost(rounds), "Peak memory since the process began."),
    }
    return Part("Training", "Over the rounds; round 0 is the untrained model.", _cards(cards))


def _alignment(run: Run, rounds: Sequence[Record]) -> list[Part]:
    local, server = run.config.local, run.config.server
    cards = {
        "Gradients in conflict, by client": (figures.conflict(rounds), "Mean over steps and units."),
        "Weights of the clients": (figures.weights(rounds), f"Rule {server.rule}; they sum to 1."),
        f"Gradients in conflict, by {local.unit}": (
            alignment_figures.conflicts(rounds, unit_names(run, rounds)),
            "From the input at the top to the projector at the bottom.",
        ),
        "Cosines between the clients' updates": (
            alignment_figures.cosines(rounds),
            "1: the same direction, 0: unrelated, -1: opposite. Move the slider to a round.",
        ),
    }
    text = f"Local rule {local.rule}, sign {local.sign}, threshold {local.threshold:g}; server rule {server.rule}."
    return [Part("Alignment", text, _cards(cards))]


def _shift(records: Sequence[Record]) -> list[Part]:
    card = _cards(
        {
            "Gradients of two domains, and what the domains share": (
                alignment_figures.shift(records),
                "A point for each pair of domains, after the last round; bars are standard errors.",
            )
        }
    )
    return [Part("Covariance and information", "Pictures of two domains correspond by class.", card)] if card else []


def _pictures(found: Look) -> list[Part]:
    ratio = f"{found.run.config.probe.ratios[0]:.0%}"
    unseen = {
        "Confusion": (
            look_figures.confusion(found),
            f"The last evaluation's probes on {ratio} of the labels, all splits; each row sums to 100 %.",
        ),
        "Accuracy of each class": (look_figures.per_class(found), "Mean and standard deviation over the splits."),
        "The unseen domain by class": (
            look_figures.map_by_class(found),
            f"The encoder's features along their first two principal components; at most {BANK} pictures.",
        ),
        "All domains": (
            look_figures.map_by_domain(found),
            "Features that do not tell domains apart would mix the colours.",
        ),
    }
    near = Card(
        "Nearest neighbours in the other domains",
        strips.neighbours(found),
        f"Left: the picture asked for. Then the nearest of at most {BANK} pictures of each other domain by the cosine "
        "of the features (the number). Solid blue frame: same class; dashed orange: another.",
        wide=True,
    )
    views = Card(
        "What training saw",
        strips.samples(found),
        "Random pictures, and under each two random views of it. Views that hide what matters make features that "
        "ignore it.",
        wide=True,
    )
    return [
        Part("Unseen domain", "How well a linear probe and the eye tell its pictures apart.", _cards(unseen)),
        Part("Pictures", "", [near, views] if near.content else [views]),
    ]


def _cards(found: Mapping[str, tuple[Figure | None, str]]) -> list[Card]:
    return [Card(title, figure, caption) for title, (figure, caption) in found.items() if figure is not None]


def unit_names(run: Run, rounds: Sequence[Record]) -> list[str]:
    """What each number of a record's ``conflicts`` is about: the name of a tensor, of a layer, or the model."""
    length = max((len(c.get("conflicts", ())) for r in rounds for c in r["clients"].values()), default=0)
    segments = Trainer(run.config, torch.device("cpu"), classes=1).layout.segments if length else ()
    keys = {"tensor": [s.name for s in segments], "layer": [s.layer for s in segments], "model": ["model"]}
    names = list(dict.fromkeys(keys[run.config.local.unit]))
    return names if len(names) == length else [f"unit {index + 1}" for index in range(length)]
