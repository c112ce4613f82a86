"""One self-contained HTML page: sections of charts, tables and pictures; nothing in it is loaded from elsewhere.

Charts are plotly's, because one well-kept library brings what a reader wants to do with them: hover, legends that
toggle, heat maps, a slider over rounds, legible on a phone. It costs 1.5 MB a page: its Python package has the whole
of plotly.js only, so that is packed with gzip, which browsers undo. A content security policy in the page forbids it
the network. Colours are Okabe's and Ito's, or cividis where they mean a size.
"""

import base64
import gzip
import html
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from fedgala import __version__
from fedgala.errors import ConfigError
from fedgala.storage import write_text

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


@dataclass(frozen=True)
class Card:
    """A box of a section: a chart, or HTML, with what it shows and how to read it."""

    title: str
    content: "Figure | str"
    caption: str = ""
    wide: bool = False


@dataclass(frozen=True)
class Part:
    """A section of a page. Without cards it is its text alone, which then says why."""

    title: str
    text: str
    cards: Sequence[Card] = ()


def require_plotly() -> None:
    """Refuse to go on without plotly.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        import plotly  # noqa: F401
    except ImportError as error:
        raise ConfigError("a page needs plotly: pip install 'fedgala[report]'") from error


def write_page(path: Path, title: str, subtitle: str, tiles: Mapping[str, str], parts: Sequence[Part]) -> None:
    """Write the page; `tiles` are the numbers on top of it, each with what it is."""
    require_plotly()
    from plotly.offline import get_plotlyjs_version

    charts: dict[str, Any] = {}
    body = [f"<h1>{escape(title)}</h1>", f'<p class="soft">{escape(subtitle)}</p>', _tiles(tiles)]
    for number, part in enumerate(parts):
        body += _part(f"part{number}", part, charts)
    links = "".join(f'<a href="#part{number}">{escape(part.title)}</a>' for number, part in enumerate(parts))
    template = Template(resources.files("fedgala.report").joinpath("page.html").read_text(encoding="utf-8"))
    page = template.substitute(
        title=escape(title),
        links=links,
        body="\n".join(body),
        charts=json.dumps(charts, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"),
        plotly=_plotly(),
        plotly_version=get_plotlyjs_version(),
        version=__version__,
    )
    write_text(path, page)


def escape(value: object) -> str:
    """Text as HTML shows it."""
    return html.escape(str(value))


def table(header: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """An HTML table of text; the columns `numbers` are set to the right."""

    def line(cells: Sequence[str], tag: str) -> str:
        kinds = [' class="number"' if index in numbers else "" for index in range(len(cells))]
        return "".join(f"<{tag}{kind}>{escape(text)}</{tag}>" for text, kind in zip(cells, kinds, strict=True))

    body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    return f'<div class="scroll"><table><tr>{line(header, "th")}</tr>{body}</table></div>'


def details(summary: str, content: str) -> str:
    """Something that is there on demand."""
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def _tiles(tiles: Mapping[str, str]) -> str:
    found = "".join(
        f'<div><b>{escape(value)}</b><span class="soft">{escape(name)}</span></div>' for name, value in tiles.items()
    )
    return f'<div class="tiles">{found}</div>'


def _part(place: str, part: Part, charts: dict[str, Any]) -> Iterator[str]:
    yield f'<section id="{place}"><h2>{escape(part.title)}</h2><p class="soft">{escape(part.text)}</p>'
    yield '<div class="grid">'
    for card in part.cards:
        yield f'<figure class="card{" wide" if card.wide else ""}"><h3>{escape(card.title)}</h3>'
        if isinstance(card.content, str):
            yield card.content
        else:
            name = f"chart{len(charts)}"
            charts[name] = _plain(card.content)
            yield f'<div class="chart" id="{name}" style="height:{card.content.layout.height}px"></div>'
        yield f"<figcaption>{escape(card.caption)}</figcaption></figure>"
    yield "</div></section>"


def _plain(figure: "Figure") -> dict[str, Any]:
    """A figure as plotly.js takes it; colours of the page come when it is shown."""
    plain: dict[str, Any] = json.loads(figure.to_json())  # NaN, which JSON has not, becomes null: a gap
    plain["layout"].pop("template", None)
    return plain


@cache
def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), 9, mtime=0)).decode()
