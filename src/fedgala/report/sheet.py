"""Contact sheets: what a data set looks like, a row per class and a group of columns per domain."""

from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image, ImageDraw
from torch import Tensor

from fedgala.data.domain import Dataset, DomainData
from fedgala.storage import write_atomically

CELL, GAP, LABEL, EDGE = 72, 4, 16, 90  # pixels
UNLABELLED_ROWS = 6


def contact_sheet(dataset: Dataset, path: Path, columns: int = 6) -> None:
    """Write a PNG with `columns` pictures per domain and class, evenly spread over each."""
    rows = list(dataset.classes) or [""] * UNLABELLED_ROWS
    group = columns * (CELL + GAP) + 3 * GAP
    sheet = Image.new("RGB", (EDGE + group * len(dataset.domains), LABEL + len(rows) * (CELL + GAP)), "white")
    pen = ImageDraw.Draw(sheet)
    for row, label in enumerate(rows):
        pen.text((4, LABEL + row * (CELL + GAP) + CELL // 2 - 6), label[:14], fill="black")
    for place, domain in enumerate(dataset.domains):
        left = EDGE + place * group
        pen.text((left, 2), domain.name, fill="black")
        for row in range(len(rows)):
            for column, index in enumerate(_chosen(domain, row, len(rows), columns)):
                corner = (left + column * (CELL + GAP), LABEL + row * (CELL + GAP))
                sheet.paste(_thumbnail(domain, index), corner)
    write_atomically(path, lambda temporary: sheet.save(temporary, format="PNG"))


def _chosen(domain: DomainData, row: int, rows: int, columns: int) -> Sequence[int]:
    if domain.labels is None:
        index = torch.arange(len(domain)).tensor_split(rows)[row]
    else:
        index = (domain.labels == row).nonzero().squeeze(1)
    if not len(index):
        return []
    picked: Tensor = index[torch.linspace(0, len(index) - 1, min(columns, len(index))).long()]
    return [int(i) for i in picked]


def _thumbnail(domain: DomainData, index: int) -> Image.Image:
    picture = Image.fromarray(domain.picture(index).permute(1, 2, 0).contiguous().numpy())
    picture.thumbnail((CELL, CELL))
    factor = min(CELL / picture.width, CELL / picture.height)
    return picture.resize((max(1, round(picture.width * factor)), max(1, round(picture.height * factor))))
