"""What each study would take on a GPU: its steps, counted, times the time of a step, measured."""

from collections.abc import Iterator, Sequence

from fedgala.client import num_steps
from fedgala.config import RunConfig
from fedgala.data.catalog import CATALOG
from fedgala.presets import PRESETS
from fedgala.report.tables import Table
from fedgala.studies.catalogue import STUDIES
from fedgala.studies.plan import SHAPES, SOURCES, Ask, Place
from fedgala.studies.study import plan

STEP_MS = 4.47  # one NVIDIA H200, batch 128, SimCLR with local alignment, the whole step; see docs/reproduce.md
BATCH = 128  # that it was measured for
SEEDS = 3
HEADER = ("study", "data", "runs", "not in the rows above", "steps of these, thousands", "GPU-minutes")


def costs_table() -> str:
    """A row for each study and data set of the paper, runs that rows share counted once, in Markdown."""
    seen: set[str] = set()
    rows = []
    for name, study in STUDIES.items():
        for data in study.data:
            if data in CATALOG:
                configs = [item.config for item in plan(study, paper_ask(data))]
                new = {config.hash: config for config in configs if config.hash not in seen}
                seen |= set(new)
                runs = len({config.hash for config in configs})
                rows.append([name, data, str(runs), str(len(new)), *_cost(data, list(new.values()))])
    caption = f"Preset paper, {SEEDS} seeds, the paper's targets; {STEP_MS} ms a step, without evaluation"
    return Table(caption, HEADER, rows).markdown()


def paper_ask(data: str) -> Ask:
    """What the paper did on a data set of the catalogue, wherever that may lie."""
    domains = tuple(CATALOG[data].domains) if data in CATALOG else SHAPES
    return Ask(Place(data, data, domains), PRESETS["paper"], {}, range(SEEDS))


def _cost(data: str, configs: Sequence[RunConfig]) -> tuple[str, str]:
    """Steps and minutes; empty where the number of pictures, or the time of such a step, is not known."""
    if not CATALOG[data].inventories:
        return "", ""
    measured = [config for config in configs if config.federation.batch_size == BATCH]
    steps = sum(run_steps(data, config) for config in measured)
    others = len(configs) - len(measured)
    more = f" and {others} runs of other batches" if others else ""
    return f"{steps / 1000:,.0f}{more}", f"{steps * STEP_MS / 60_000:,.0f}{more}"


def run_steps(data: str, config: RunConfig) -> int:
    """Training steps of a run on a complete copy of `data`."""
    federation = config.federation
    counts = list(_pictures(data, config))
    shares = (
        counts
        if config.partition.clients is None
        else [sum(counts) // config.partition.clients] * config.partition.clients
    )
    return federation.rounds * sum(num_steps(count, federation.batch_size, federation.epochs) for count in shares)


def _pictures(data: str, config: RunConfig) -> Iterator[int]:
    wanted = SOURCES.get(data)
    for domain, count in CATALOG[data].inventories[-1].totals.items():
        if domain != config.data.target and (wanted is None or domain in wanted):
            yield count
