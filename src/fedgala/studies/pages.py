"""Pages whose numbers come from committed records: what is between two marks is computed, and a test compares.

A mark names what goes below it: a study, for its tables on the data it was run on, and on the paper's with empty cells
where nothing ran; ``costs`` for what each study would take.
"""

import re
from dataclasses import replace
from pathlib import Path

from fedgala.errors import ConfigError
from fedgala.settings import near
from fedgala.storage import write_text
from fedgala.studies.carry import show
from fedgala.studies.catalogue import STUDIES
from fedgala.studies.costs import costs_table, paper_ask
from fedgala.studies.exhibit import FORMATS
from fedgala.studies.outcome import find_studies, foreseen, read_study
from fedgala.studies.study import plan

NOWHERE = "."  # a folder without runs
MARK = re.compile(r"(<!-- results: (?!end)([\w-]+) -->\n)(.*?)(<!-- results: end -->)", re.DOTALL)


def fill(page: Path, results: Path) -> bool:
    """Compute what is between the marks of `page`; whether it changed.

    Raises:
        ConfigError: the page has no marks, or one that is not known.
    """
    before = page.read_text(encoding="utf-8")
    after = filled(before, results)
    if before == after and not MARK.search(before):
        raise ConfigError(f"{page} has no mark such as <!-- results: demo --> ... <!-- results: end -->")
    if after != before:
        write_text(page, after)
    return after != before


def filled(text: str, results: Path) -> str:
    """The text of a page with what the records in `results` say."""
    return MARK.sub(lambda found: f"{found[1]}\n{part(found[2], results).strip()}\n\n{found[4]}", text)


def part(name: str, results: Path) -> str:
    """What goes below a mark.

    Raises:
        ConfigError: no such mark.
    """
    if name == "costs":
        return costs_table()
    if name not in STUDIES:
        raise ConfigError(f"no mark <!-- results: {name} -->: {near(name, ['costs', *STUDIES])}")
    folders = [folder for out in sorted(results.glob("*")) for folder in find_studies(out, name)]
    outcomes = [read_study(folder) for folder in folders]
    for data in STUDIES[name].data:
        if data not in {outcome.data for outcome in outcomes}:
            ask = paper_ask(data)
            outcomes.append(foreseen(name, ask.place, plan(STUDIES[name], replace(ask, out=NOWHERE))))
    return "\n\n".join(FORMATS["markdown"][1](show(outcome)) for outcome in outcomes)
