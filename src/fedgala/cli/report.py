"""The command that looks back: a run, or a folder of runs, as a page and in a few lines."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedgala.cli.progress import evaluation_line, memory_line, observer
from fedgala.errors import ConfigError

if TYPE_CHECKING:
    from fedgala.run import Run

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="say only what went wrong or needs attention")]


def report(
    folder: Annotated[
        Path, typer.Argument(metavar="RUN_OR_STUDY", help="the folder of a run, or of many", show_default=False)
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="the page; report.html in the folder if not said")
    ] = None,
    data: Annotated[str | None, typer.Option(help="where the run's pictures are now, if they have moved")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N")] = "auto",
    quiet: Quiet = False,
) -> None:
    """Write one self-contained HTML page about a run, or about all runs of a study or folder.

    **fedgala report runs/shapes-sketch-0a1b2c3d**

    **fedgala report runs/ -o all.html**
    """
    from fedgala.report.members import find_members, open_run
    from fedgala.report.page import require_plotly

    page = output or folder / "report.html"
    watcher = observer(quiet)
    if (folder / "config.toml").exists():
        run = open_run(folder)
        if not quiet:
            _summary(run)
        require_plotly()
        from fedgala.report.run_page import write_run_page

        write_run_page(run, page, data, device, watcher)
    else:
        members = find_members(folder)
        if not members:
            raise ConfigError(f"{folder} is not the folder of a run, and there is none in it: no config.toml")
        require_plotly()
        from fedgala.report.study_page import write_study_page

        write_study_page(members, folder, page)
    print(f"page     {page}")


def _summary(run: "Run") -> None:
    """How a run went, in a few lines."""
    rounds, evaluations = run.records.read("round"), run.records.read("evaluation")
    state = "finished" if run.finished else f"{len(rounds)} of {run.config.federation.rounds} rounds done"
    print(f"{run.folder}: {state}")
    if rounds:
        seconds = sum(record["seconds"] for record in rounds)
        print(f"loss {rounds[0]['loss']:.3f} -> {rounds[-1]['loss']:.3f} in {seconds:.0f} s of training")
        if rounds[-1]["peak_memory"]:
            print(memory_line(rounds[-1]))
    for record in evaluations:
        print(evaluation_line(record))
