"""The commands, and how each kind of ending looks: a line and an exit code.

Commands import what they need when they run: help, and a second look at data, do not wait for torch.
"""

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from fedgala import __version__
from fedgala.cli import data as data_commands
from fedgala.cli import deploy, results, study
from fedgala.cli.bench import bench
from fedgala.cli.flags import configuration, with_settings
from fedgala.cli.progress import Live, observer, say
from fedgala.cli.report import report
from fedgala.errors import FedgalaError
from fedgala.methods import METHODS
from fedgala.presets import PRESETS
from fedgala.report.tables import table
from fedgala.toml import to_toml

app = typer.Typer(
    name="fedgala",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Train one image encoder across sites that share neither data nor labels, for domains nobody has seen.\n\n"
    "Start with **fedgala demo**; then **fedgala train --data YOUR_FOLDER**.",
)
app.add_typer(data_commands.app, name="data")
app.add_typer(deploy.app, name="deploy")
app.add_typer(study.app, name="study")

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="say only what went wrong or needs attention")]
INTERRUPTED = 130  # 128 + SIGINT, as shells report it


def version(show: bool) -> None:
    """Print the version and stop."""
    if show:
        print(f"fedgala {__version__}")
        raise typer.Exit


@app.callback()
def common(
    show: Annotated[bool, typer.Option("--version", callback=version, is_eager=True, help="print the version")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="show the traceback of an error; goes anywhere")] = False,
) -> None:
    """Options of all commands."""


def train(
    settings: dict[str, str],
    preset: Annotated[str | None, typer.Option(help=f"how large and how long: {', '.join(PRESETS)}")] = None,
    method: Annotated[str | None, typer.Option(help="fedgala, fedsimclr, ...: `fedgala methods` lists them")] = None,
    config: Annotated[Path | None, typer.Option(help="a TOML file with settings, as a run's config.toml")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print the complete configuration and stop")] = False,
    quiet: Quiet = False,
) -> None:
    """Train an encoder on all domains of a data set but one.

    Each domain is a client. The same command again finishes an interrupted run, or says that it is finished.
    Settings come from the defaults (the paper's), then --preset, --method, --config, then the flags below.

    **fedgala train --data shapes --target sketch --preset cpu**

    **fedgala train --data photos/ --rounds 20**  (no labels, no held-out domain)
    """
    chosen = configuration(preset, method, config, settings)
    if dry_run:
        print(to_toml(chosen), end="")
        return
    from fedgala.api import train as carry_out

    watcher = observer(quiet)
    try:
        run = carry_out(chosen, watcher)
    except KeyboardInterrupt:
        say(f"stopped; the last whole round is saved in {chosen.folder}. The same command goes on from there")
        raise typer.Exit(INTERRUPTED) from None
    finally:
        if isinstance(watcher, Live):
            watcher.close()
    print(f"encoder  {run.encoder_path}")
    if (run.folder / "plots").exists():
        print(f"plots    {run.folder / 'plots'}")


def methods() -> None:
    """List the methods that --method names: whose they are, what leaves a client and what stays."""
    rows = [
        [name, it.line, it.paper, "needed" if it.labels else "no", it.travels, it.stays or "-"]
        for name, it in METHODS.items()
    ]
    print(table(["method", "in a line", "from", "labels", "travels", "stays"], rows, right=False))


app.command("train")(with_settings(train))
app.command("methods")(methods)
app.command("bench")(with_settings(bench))
app.command("probe")(results.probe)
app.command("embed")(results.embed)
app.command("report")(report)
app.command("demo")(results.demo)


def run(arguments: Sequence[str]) -> int:
    """The exit code of a command: 0 done, 1 a defect of ours, 2 a mistake to put right, 130 interrupted."""
    debug = "--debug" in arguments
    words = [word for word in arguments if word != "--debug"]
    try:
        code = _exit_code(lambda: app(words, prog_name="fedgala", standalone_mode=False))
        print(end="", flush=True)  # or a full disk would show when nobody can say so any more
        return code
    except FedgalaError as error:
        if debug:
            traceback.print_exc()
        say(f"fedgala: {error}")
        return 2
    except KeyboardInterrupt:
        say("stopped")
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has gone, as in `fedgala ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if debug:
            traceback.print_exc()
        where = f"{error.filename}: " if error.filename else ""
        say(f"fedgala: {where}{error.strerror or error}")
        return 2


def _exit_code(call: Callable[[], object]) -> int:
    try:
        result = call()
    except typer.Exit as ending:
        return ending.exit_code
    except typer.Abort:
        return INTERRUPTED
    except Exception as error:
        message = getattr(error, "format_message", None)  # what typer says about wrong arguments has no public base
        if message is None:
            raise
        say(f"fedgala: {message()}".replace("\n", " "))
        return 2
    return result if isinstance(result, int) else 0
