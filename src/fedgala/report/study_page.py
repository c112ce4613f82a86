"""The page of a folder of runs: what they come to, side by side, and their curves on top of each other."""

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, stdev

from plotly.graph_objects import Figure

from fedgala.records import Record
from fedgala.report.figures import Line, curves
from fedgala.report.page import Card, Part, table, write_page
from fedgala.report.tables import cell
from fedgala.studies.carry import show
from fedgala.studies.outcome import MANIFEST, Entry, read_study

LINES = 12  # runs beyond which curves are means over seeds, as wide as the page


def _probe(record: Record) -> float | None:
    values = next(iter(record.get("probe", {}).get("encoder", {}).values()), None)
    return 100 * fmean(values) if values else None


Read = Callable[[Record], float | None]
READINGS: dict[str, tuple[str, str, str, Read]] = {
    "Accuracy on the unseen domain": ("evaluation", "right answers, %", ".1f", _probe),
    "Training loss": ("round", "loss, mean over the clients", ".3f", lambda record: record.get("loss")),
    "Gradients in conflict": ("round", "share in conflict", ".0%", lambda record: record.get("conflict")),
    "Effective rank": ("evaluation", "directions", ".1f", lambda record: record["monitor"]["effective_rank"]),
}
"""What runs are compared in: the records of one kind, the axis, the digits, and the number in a record."""


def write_study_page(members: Sequence[Entry], folder: Path, path: Path) -> None:
    """Write the page of the runs in `folder`."""
    finished = sum(_finished(member) for member in members)
    targets, seeds = {m.target for m in members}, {m.seed for m in members}
    tiles = {
        "runs finished": f"{finished} of {len(members)}",
        "unseen domains": str(len(targets)),
        "seeds": str(len(seeds)),
    }
    parts = [*(_tables(folder) or [_accuracies(members)]), _overlay(members), _runs(members)]
    write_page(path, folder.resolve().name, "Runs side by side, from their records.", tiles, parts)


def _finished(member: Entry) -> bool:
    return any(record["round"] == member.rounds for record in member.of("round"))


def _tables(folder: Path) -> list[Part]:
    """What a study shows, as far as its runs go."""
    if not (folder / MANIFEST).exists():
        return []
    outcome = read_study(folder)
    cards = [
        Card(
            f"Table {number}",
            table(each.header, each.rows, numbers=range(1, len(each.header))),
            " ".join([each.caption, *each.notes]),
            wide=True,
        )
        for number, each in enumerate(show(outcome).tables, 1)
    ]
    return [Part(outcome.study, f"What the study shows on {outcome.data}, the paper beside it where it says.", cards)]


def _accuracies(members: Sequence[Entry]) -> Part:
    """A row for each method, a column for each unseen domain: mean and spread over seeds, and the number of runs."""
    ratio = next((r for m in members for e in m.of("evaluation") for r in e.get("probe", {}).get("encoder", ())), None)
    if ratio is None:
        return Part("Accuracy", "No run has been evaluated on a labelled domain.")
    targets = sorted({member.target for member in members})
    rows = []
    for label in dict.fromkeys(member.label for member in members):
        cells = [
            [v for m in members if (m.label, m.target) == (label, target) for v in _last(m, ratio)]
            for target in targets
        ]
        rows.append([label, *(f"{cell(values)} ({len(values)})" if values else "" for values in cells)])
    text = table(["right answers, %", *targets], rows, numbers=range(1, len(targets) + 1))
    caption = (
        f"Linear probe on the encoder with {float(ratio):.0%} of the labels, after the last round: mean and standard "
        "deviation over seeds, in brackets the number of finished runs. An empty cell: none."
    )
    return Part(
        "Accuracy", "On the domain that no client has.", [Card("After the last round", text, caption, wide=True)]
    )


def _last(member: Entry, ratio: str) -> list[float]:
    """The accuracy after the last round, if there is one yet."""
    return [
        fmean(record["probe"]["encoder"][ratio])
        for record in member.of("evaluation")
        if record["round"] == member.rounds and ratio in record.get("probe", {}).get("encoder", {})
    ]


def _overlay(members: Sequence[Entry]) -> Part:
    cards = []
    for title, (kind, label, digits, read) in READINGS.items():
        figure = _together(members, kind, label, digits, read)
        if figure is not None:
            cards.append(Card(title, figure, "", wide=len(members) > LINES))
    text = "A line for each run; a click on the legend hides one, a double click shows it alone."
    if len(members) > LINES:
        text = "Mean and standard deviation over seeds; a click on the legend hides a line, a double click isolates it."
    return Part("Curves", text, cards)


def _together(members: Sequence[Entry], kind: str, label: str, digits: str, read: Read) -> Figure | None:
    """A curve for each run, or for all seeds of a method and domain where runs are many; a colour for each method."""
    groups: dict[str, list[Entry]] = {}
    for member in members:
        groups.setdefault(_name(member, members), []).append(member)
    methods = list(dict.fromkeys(member.label for member in members))
    targets = list(dict.fromkeys(member.target for member in members))
    lines = []
    for name, group in groups.items():
        points = _points(group, kind, read)
        means = [fmean(values) for values in points.values()]
        spread = [stdev(values) if len(values) > 1 else 0.0 for values in points.values()] if len(group) > 1 else None
        color, style = methods.index(group[0].label), targets.index(group[0].target)
        place = (color, style) if len(methods) > 1 else (None, None)
        if means:
            lines.append(Line(name, list(points), means, spread, *place))
    return curves(lines, label, digits=digits) if lines else None


def _points(group: Sequence[Entry], kind: str, read: Read) -> dict[int, list[float]]:
    """By round, what was read off each run that has got there."""
    points: dict[int, list[float]] = {}
    for record in (record for member in group for record in member.of(kind)):
        value = read(record)
        if value is not None:
            points.setdefault(record["round"], []).append(value)
    return dict(sorted(points.items()))


def _name(member: Entry, members: Sequence[Entry]) -> str:
    """What tells a curve from the others: method, domain and seed, as far as they differ."""
    parts: list[Callable[[Entry], str]] = [lambda it: it.label, lambda it: it.target, lambda it: f"seed {it.seed}"]
    known = parts if len(members) <= LINES else parts[:2]
    telling = [part(member) for part in known if len({part(it) for it in members}) > 1]
    return ", ".join(telling) or member.label


def _runs(members: Sequence[Entry]) -> Part:
    rows = []
    for member in members:
        rounds = member.of("round")
        state = "finished" if _finished(member) else f"{len(rounds)} of {member.rounds} rounds"
        accuracy = next((f"{_probe(r):.1f}" for r in reversed(member.of("evaluation")) if _probe(r) is not None), "")
        seconds = f"{sum(record['seconds'] for record in rounds):.0f}"
        rows.append([member.label, member.target, str(member.seed), state, accuracy, seconds, member.folder.name])
    header = ["method", "unseen", "seed", "state", "last accuracy, %", "training, s", "folder"]
    text = table(header, rows, numbers=(2, 4, 5))
    return Part("Runs", "Each folder has a page of its own: fedgala report FOLDER.", [Card("Runs", text, wide=True)])
