"""Tables as text, Markdown, LaTeX and CSV, computed from records; what is missing is an empty cell."""

import csv
import io
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


def cell(values: Sequence[float], scale: float = 100) -> str:
    """``61.2 ± 0.8``: mean and sample standard deviation; no spread for one value, nothing for none."""
    if not values:
        return ""
    mean = scale * statistics.fmean(values)
    return f"{mean:.1f} ± {scale * statistics.stdev(values):.1f}" if len(values) > 1 else f"{mean:.1f}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], right: bool = True) -> str:
    """Columns wide enough for what is in them; the first to the left, the others, numbers mostly, to the right."""
    lines = [list(header), *[list(row) for row in rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    place = str.rjust if right else str.ljust
    text = ["  ".join([line[0].ljust(widths[0]), *map(place, line[1:], widths[1:])]).rstrip() for line in lines]
    return "\n".join([text[0], "  ".join("-" * width for width in widths), *text[1:]])


@dataclass(frozen=True)
class Table:
    """A table with what has to be known to read it."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()

    def text(self) -> str:
        """For a terminal."""
        return "\n".join([self.caption, "", table(self.header, self.rows), *(["", *self.notes] if self.notes else [])])

    def markdown(self) -> str:
        """For a page."""
        lines = [self.header, ["---"] * len(self.header), *self.rows]
        body = ["| " + " | ".join(text.strip().replace("|", "\\|") for text in line) + " |" for line in lines]
        return "\n".join([*body, "", f"*{self.caption}*", *(f"\n{note}" for note in self.notes)])

    def latex(self) -> str:
        """For a paper, with booktabs."""
        rule = "l" + "r" * (len(self.header) - 1)
        body = [" & ".join(map(_latex, line)) + r" \\" for line in (self.header, *self.rows)]
        notes = "".join(rf"\par\footnotesize {_latex(note)}" for note in self.notes)
        begin = [r"\begin{table}", rf"\begin{{tabular}}{{{rule}}}", r"\toprule", body[0], r"\midrule"]
        end = [r"\bottomrule", r"\end{tabular}", rf"\caption{{{_latex(self.caption)}}}{notes}", r"\end{table}"]
        return "\n".join([*begin, *body[1:], *end])


def as_csv(facts: Sequence[Mapping[str, object]]) -> str:
    """One line per fact under the names of all facts; what is not known is empty."""
    names = list(dict.fromkeys(name for fact in facts for name in fact))
    file = io.StringIO()
    writer = csv.DictWriter(file, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(facts)
    return file.getvalue()


LATEX = {
    "&": r"\&",
    "%": r"\%",
    "_": r"\_",
    "#": r"\#",
    "±": r"$\pm$",
    "λ": r"$\lambda$",
    "μ": r"$\mu$",
    "τ": r"$\tau$",
}


def _latex(text: str) -> str:
    return "".join(LATEX.get(character, character) for character in text.strip())
