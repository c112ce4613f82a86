"""Rows of small pictures as HTML, each picture inside the page: samples with their views, neighbours across domains."""

import base64
import io
from collections.abc import Sequence

import torch
from PIL import Image
from torch import Tensor

from fedgala.report.look import Look, nearest, spread
from fedgala.report.page import escape
from fedgala.report.plots import sample_views

SIDE = 96  # pixels of the longer side of a picture in the page
QUERIES = 8
NEIGHBOURS = 5
SAMPLES = 6  # domains whose samples are shown


def samples(look: Look) -> str:
    """For each of some domains a row of pictures, and under each the two views that training might see."""
    rows = []
    for domain in (*look.sources[: SAMPLES - 1], *([look.target] if look.target else look.sources[SAMPLES - 1 :][:1])):
        some, first, second = sample_views(look.run.config, domain)
        pictures = [image(some.picture(index), f"{domain.name}, picture {index}") for index in range(len(some))]
        views = [
            image((view * 255).round().byte(), f"a view of {domain.name}, picture {index % len(some)}", pixels=True)
            for index, view in enumerate((*first, *second))
        ]
        ones, others = views[: len(some)], views[len(some) :]
        cells = [f"<figure>{''.join(column)}</figure>" for column in zip(pictures, ones, others, strict=True)]
        unseen = " (unseen)" if domain is look.target else ""
        rows.append(f'<div class="strip"><b>{escape(domain.name + unseen)}</b>{"".join(cells)}</div>')
    return f'<div class="strips">{"".join(rows)}</div>'


def neighbours(look: Look) -> str:
    """Pictures of the unseen domain, each before those of the other domains whose features are nearest."""
    query = look.target or look.sources[0]
    others = [domain for domain in look.sources if domain is not query]
    if not others:
        return ""
    chosen = _queries(query.labels, len(query), len(look.classes))
    places = [(domain, index) for domain in others for index in range(len(domain))]
    bank = torch.cat([look.features[domain.name] for domain in others])
    index, cosines = nearest(look.features[query.name][chosen], bank, NEIGHBOURS)
    rows = []
    for asked, found, scores in zip(chosen.tolist(), index.tolist(), cosines.tolist(), strict=True):
        truth = None if query.labels is None else int(query.labels[asked])
        cells = [_cell(query.picture(asked), "query", [query.name, *_class(look, truth)])]
        for place, score in zip(found, scores, strict=True):
            domain, number = places[place]
            label = None if domain.labels is None else int(domain.labels[number])
            kind = "" if truth is None or label is None else "same" if label == truth else "other"
            cells.append(_cell(domain.picture(number), kind, [domain.name, *_class(look, label), f"{score:.3f}"]))
        rows.append(f'<div class="strip">{"".join(cells)}</div>')
    return f'<div class="strips">{"".join(rows)}</div>'


def _queries(labels: Tensor | None, length: int, classes: int) -> Tensor:
    """Pictures to ask for: from the middle of each of some classes, or evenly spread where there are no labels."""
    if labels is None:
        return spread(length, QUERIES)
    pools = [(labels == label).nonzero().squeeze(1) for label in spread(classes, QUERIES).tolist()]
    return torch.stack([pool[len(pool) // 2] for pool in pools if len(pool)])


def _class(look: Look, label: int | None) -> Sequence[str]:
    return [] if label is None else [look.classes[label]]


def _cell(picture: Tensor, kind: str, lines: Sequence[str]) -> str:
    caption = "<br>".join(escape(line) for line in lines)
    described = image(picture, ", ".join(lines))
    return f'<figure class="{kind}">{described}<figcaption>{caption}</figcaption></figure>'


def image(picture: Tensor, alternative: str, pixels: bool = False) -> str:
    """A uint8 (3, H, W) picture as an element of HTML; with `pixels` exactly as it is."""
    shown = Image.fromarray(picture.permute(1, 2, 0).contiguous().numpy())
    file = io.BytesIO()
    if pixels:
        shown.save(file, format="PNG", optimize=True)
    else:
        shown.thumbnail((SIDE, SIDE))
        shown.save(file, format="JPEG", quality=85)
    kind = "png" if pixels else "jpeg"
    data = base64.b64encode(file.getvalue()).decode()
    of = ' class="pixels"' if pixels else ""
    return f'<img{of} alt="{escape(alternative)}" src="data:image/{kind};base64,{data}">'
