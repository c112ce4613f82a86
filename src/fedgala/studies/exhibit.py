"""What a study shows: tables, the facts behind them one by one, and where the paper has a figure, a picture."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedgala.report.tables import Table, as_csv
from fedgala.storage import write_atomically, write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Exhibit:
    """A table or figure of the paper, ours beside theirs."""

    tables: Sequence[Table]
    facts: Sequence[Mapping[str, object]]
    draw: "Callable[[Figure], None] | None" = None


FORMATS: dict[str, tuple[str, Callable[[Exhibit], str]]] = {
    "text": ("txt", lambda exhibit: "\n\n\n".join(table.text() for table in exhibit.tables) + "\n"),
    "markdown": ("md", lambda exhibit: "\n\n".join(table.markdown() for table in exhibit.tables) + "\n"),
    "latex": ("tex", lambda exhibit: "\n\n".join(table.latex() for table in exhibit.tables) + "\n"),
    "csv": ("csv", lambda exhibit: as_csv(exhibit.facts)),
}
"""The forms a study is shown in: the ending of the file, and its text."""


def save_exhibit(exhibit: Exhibit, folder: Path) -> list[Path]:
    """Write the tables in every form, and the picture, into `folder`; no picture where matplotlib is missing."""
    written = []
    for ending, render in FORMATS.values():
        written.append(folder / f"table.{ending}")
        write_text(written[-1], render(exhibit))
    if exhibit.draw and (picture := _picture(exhibit.draw, folder / "figure.png")):
        written.append(picture)
    return written


def _picture(draw: "Callable[[Figure], None]", path: Path) -> Path | None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    draw(figure)
    write_atomically(path, lambda temporary: figure.savefig(temporary, format="png", dpi=120))
    return path
