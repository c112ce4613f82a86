"""The tables of the page on theory, computed from rows and put between two marks."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from fedgala.storage import write_text
from fedgala.studies.theory.rows import SIGMAS, Row, out_of_order

BEGIN, END = "<!-- theory: computed -->", "<!-- theory: end -->"
SUMMARY = (
    "| statement | sweep | points | worst deviation of Monte Carlo from exact, standard errors | error of the formula "
    "| pairs of points out of order, correlation ≥ 0 | any correlation |\n|---|---|---|---|---|---|---|"
)
DETAIL = (
    "| correlation | mutual information, nats | Monte Carlo | exact | Lemma 2 | its error | Monte Carlo within "
    f"{SIGMAS:g} standard errors of exact | of Lemma 2 |\n|---|---|---|---|---|---|---|---|"
)
REMOVAL = (
    "| correlation | agreement with the mean grows | trace grows: unrelated partner | its own partner |\n"
    "|---|---|---|---|"
)


def tables(rows: Sequence[Row]) -> str:
    """A line per sweep; Theorem 1 for positive pairs point by point; Proposition 1 by correlation."""
    positive = [row for row in rows if (row.statement, row.case) == ("Theorem 1", "positive pairs")]
    parts = [
        "\n".join([SUMMARY, *_summary([row for row in rows if row.statement != "Proposition 1"])]),
        "Theorem 1, positive pairs, point by point:",
        "\n".join([DETAIL, *map(_detail, positive)]),
        "Proposition 1, share of draws (± standard error), noise 2:",
        "\n".join([REMOVAL, *_removal(rows)]),
    ]
    return "\n\n".join(parts) + "\n"


def put_into(page: Path, text: str) -> None:
    """Replace what is between the marks of `page`."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    write_text(page, f"{before}{BEGIN}\n\n{text}\n{END}{after}")


def _summary(rows: Sequence[Row]) -> Iterator[str]:
    for (statement, case), group in groupby(rows, key=lambda row: (row.statement, _family(row.case))):
        part = list(group)
        worst = max(abs(row.deviation or 0.0) for row in part)
        errors = [row.error for row in part if row.error is not None]
        falling = statement == "Corollary 1"
        tied = [row for row in part if row.at.get("correlation", 0) >= 0]
        signed = any(row.at.get("correlation", 0) < 0 for row in part)
        orders = (_percent(out_of_order(tied, falling)), _percent(out_of_order(part, falling)) if signed else "")
        span = f"{_percent(min(errors), True)} to {_percent(max(errors), True)}"
        yield f"| {statement} | {case} | {len(part)} | {worst:.1f} | {span} | {orders[0]} | {orders[1]} |"


def _family(case: str) -> str:
    return "strength of the augmentation" if case.startswith("augmentation") else case


def _percent(share: float | None, signed: bool = False) -> str:
    if share is None:
        return ""
    if abs(share) >= 100:
        return f"{share:+.0e}"
    return f"{100 * share:+.1f} %" if signed else f"{100 * share:.0f} %"


def _detail(row: Row) -> str:
    near = abs(row.estimate - row.formula) <= SIGMAS * row.standard_error
    error = "" if row.error is None else _percent(row.error, True)
    where = f"| {row.at['correlation']:.2f} | {abs(row.at['information']):.3f} "
    values = (
        f"| {row.estimate:.4f} ± {row.standard_error:.4f} | {abs(row.exact or 0) * _sign(row):.4f} | {row.formula:.4f} "
    )
    return f"{where}{values}| {error} | {'yes' if row.agrees else 'no'} | {'yes' if near else 'no'} |"


def _sign(row: Row) -> int:
    return -1 if row.exact is not None and row.exact < -1e-9 else 1


def _removal(rows: Sequence[Row]) -> Iterator[str]:
    names = ("agreement with the mean", "unrelated partners leave", "a pair leaves")
    columns = [[row for row in rows if row.case == f"{name}, noise 2"] for name in names]
    for line in zip(*columns, strict=True):
        cells = [f"{100 * row.estimate:.1f} ± {100 * row.standard_error:.1f} %" for row in line]
        yield f"| {line[0].at['correlation']:.2f} | {' | '.join(cells)} |"
