"""Commands about the paper's tables and figures: which there are, carry one out, show it."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedgala.cli.flags import chosen, with_settings
from fedgala.cli.progress import say
from fedgala.config import RunConfig
from fedgala.errors import ConfigError
from fedgala.presets import PRESETS
from fedgala.settings import near

if TYPE_CHECKING:
    from fedgala.studies.plan import Ask, Planned
    from fedgala.studies.schedule import Summary
    from fedgala.studies.watch import Watcher

app = typer.Typer(
    no_args_is_help=True, help="The paper's tables and figures, a command each: list, run, table, page.",
    rich_markup_mode="markdown",
)  # fmt: skip
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
THEORY = "theory"
FAILED = 1
Out = Annotated[Path, typer.Option(help="where studies and their runs are kept")]


@app.command("list")
def list_studies() -> None:
    """Which studies there are."""
    from fedgala.studies.catalogue import STUDIES

    rows = [[name, study.title, ", ".join(study.data)] for name, study in STUDIES.items()]
    rows.append([THEORY, "The paper's theorem, corollary and proposition, checked in their own setting", ""])
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for name, title, data in rows:
        print(f"{name:{widths[0]}}  {title:{widths[1]}}  {data}".rstrip())


def run_study(
    settings: dict[str, str],
    study: Annotated[str, typer.Argument(metavar="NAME", help="see `fedgala study list`", show_default=False)],
    seeds: Annotated[int, typer.Option(min=1, help="seeds 0, 1, ...; the paper has 3")] = 3,
    targets: Annotated[str | None, typer.Option(help="unseen domains, with commas; the paper's if not said")] = None,
    preset: Annotated[
        str | None, typer.Option(help=f"{', '.join(PRESETS)}; paper if not said, cpu for the embedded data set")
    ] = None,
    budget: Annotated[str | None, typer.Option(help="stop in time, as 30m or 8h; the same command goes on")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="runs at a time; one per GPU, or per core")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="list the runs and stop")] = False,
) -> None:
    """Carry out a table or a figure of the paper: all of its runs that are missing, then show it.

    Any setting of a run is a flag here too and holds for all rows, but for what a method or the study itself sets. The
    same command in the same folder on other machines takes other runs of the same study.

    **fedgala study run table4 --data shapes --rounds 2 --seeds 2**

    **fedgala study run table1 --data PACS --budget 8h**
    """
    if study == THEORY:
        _theory(Path(settings.get("out", "studies")))
        return
    from fedgala.studies.carry import Means, plan_named, show, study_folder
    from fedgala.studies.carry import run_study as carry_out
    from fedgala.studies.exhibit import FORMATS
    from fedgala.studies.outcome import read_study

    seconds = duration(budget) if budget else None
    ask = _ask(settings, preset, range(seeds), tuple(targets.split(",")) if targets else ())
    planned = plan_named(study, ask)
    _notes(ask, planned)
    if dry_run:
        for item in planned:
            print(f"{item.config.folder}  {item.variant.label}, {item.target}, seed {item.seed}")
        return
    means = Means(jobs, settings.get("engine_device", "auto"), seconds)
    summary = carry_out(study, ask, planned, means, watcher())
    folder = study_folder(study, ask)
    print(FORMATS["text"][1](show(read_study(folder))), end="")
    print(f"\nin {folder}: table.txt, .md, .tex, .csv" + (", figure.png" if (folder / "figure.png").exists() else ""))
    ending(summary)


app.command("run")(with_settings(run_study))


@app.command("table")
def show_table(
    name: Annotated[str, typer.Argument(help="a study that was run", show_default=False)],
    out: Out = Path("studies"),
    format: Annotated[str, typer.Option(help="text, markdown, latex or csv")] = "text",
    features: Annotated[str, typer.Option(help="encoder, or projector: what was probed")] = "encoder",
) -> None:
    """Show a study as far as its runs go, computed from their records.

    **fedgala study table table1 --out results/pacs --format latex**
    """
    from fedgala.studies.carry import show, study_named
    from fedgala.studies.exhibit import FORMATS, save_exhibit
    from fedgala.studies.outcome import find_studies, read_study

    study_named(name)
    for option, value, allowed in (("format", format, FORMATS), ("features", features, ("encoder", "projector"))):
        if value not in allowed:
            raise ConfigError(f"--{option} {value}: {near(value, allowed)}")
    folders = list(find_studies(out, name))
    if not folders:
        raise ConfigError(f"{out} holds no study {name}: run it first, or say --out")
    for folder in folders:
        exhibit = show(read_study(folder, features))
        if features == "encoder":
            save_exhibit(exhibit, folder)
        print(FORMATS[format][1](exhibit), end="")


@app.command("page")
def write_pages(
    pages: Annotated[list[Path], typer.Argument(help="Markdown pages with marks", show_default=False)],
    results: Annotated[Path, typer.Option(help="committed records")] = Path("results"),
) -> None:
    """Put what the records say between the marks of pages: ``<!-- results: NAME -->`` to ``<!-- results: end -->``."""
    from fedgala.studies.pages import fill

    for page in pages:
        print(f"{page}: {'changed' if fill(page, results) else 'as it was'}")


def duration(text: str) -> float:
    """Seconds in ``90s``, ``30m``, ``1h30m``, ``2d``.

    Raises:
        ConfigError: it is something else.
    """
    if not re.fullmatch(r"(\d+(\.\d+)?[smhd])+", text):
        raise ConfigError(f"--budget {text}: expected a time such as 90s, 30m, 8h or 1h30m")
    return sum(float(number) * UNITS[unit] for number, _, unit in re.findall(r"(\d+(\.\d+)?)([smhd])", text))


def _ask(settings: dict[str, str], preset: str | None, seeds: range, targets: tuple[str, ...]) -> "Ask":
    from fedgala.studies.plan import Ask, locate

    for flag, instead in (("seed", "--seeds COUNT"), ("data_target", "--targets"), ("name", "--out for the folder")):
        if flag in settings:
            raise ConfigError(f"a study sets {flag.replace('_', '.')} itself, for each of its runs: use {instead}")
    if "data_path" not in settings:
        raise ConfigError("--data is missing: a folder or archive of pictures, hf:OWNER/NAME, or shapes")
    flags = chosen(RunConfig, settings)
    place = locate(RunConfig.from_dict({"data": {"path": settings["data_path"]}}).data.path)
    named = preset or ("cpu" if place.path == "shapes" else "paper")
    if named not in PRESETS:
        raise ConfigError(f"--preset {named}: {near(named, PRESETS)}")
    return Ask(place, PRESETS[named], flags, seeds, targets, settings.get("out", "studies"))


def _notes(ask: "Ask", planned: "Sequence[Planned]") -> None:
    from fedgala.studies.plan import overruled

    folders = {item.config.folder for item in planned}
    say(f"{len(folders)} runs in {ask.out}/runs")
    for setting, labels in overruled(ask, planned).items():
        say(f"note: {setting} as given does not hold for {', '.join(sorted(labels))}, which set it themselves")


def watcher() -> "Watcher":
    """The watcher of many runs that fits where output goes."""
    from fedgala.studies.watch import LiveWatcher, Watcher

    return LiveWatcher() if sys.stderr.isatty() else Watcher(say)


def ending(summary: "Summary") -> None:
    """Say what is not done and why, and leave with the exit code that tells."""
    for folder, why in summary.failed.items():
        say(f"failed: {folder}: {why}")
    if summary.left:
        why = "interrupted" if summary.interrupted else "out of time"
        say(f"{why}: {len(summary.left)} runs are left; the same command goes on")
    if summary.interrupted:
        raise typer.Exit(130)
    if summary.failed:
        raise typer.Exit(FAILED)


def _theory(out: Path) -> None:
    from fedgala.studies.theory.page import tables
    from fedgala.studies.theory.study import check_theory

    print(tables(check_theory(out / THEORY, say=say)), end="")
    print(f"\nin {out / THEORY}: records.jsonl, plots")
