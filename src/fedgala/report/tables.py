"""Tables in plain text, computed from records: a cell is mean and spread over seeds, a missing run is an empty cell."""

import statistics
from collections.abc import Sequence


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
