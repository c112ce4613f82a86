"""Commands for many machines: make a deployment, run its server and its sites, start runs, look at them.

They need the extra ``fedgala[flower]``, and say so where it is missing.
"""

import json
import signal
from collections.abc import Callable
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from fedgala.cli.flags import chosen, configuration, with_settings
from fedgala.cli.progress import evaluation_line, say
from fedgala.errors import ConfigError

app = typer.Typer(
    no_args_is_help=True,
    help="Train across machines: pictures stay where they are.\n\n"
    "See it work with **demo**. Then **init** makes a deployment, **superlink** runs its server, **site** each of its "
    "sites, **run** trains, **status** looks.",
)

Folder = Annotated[Path, typer.Argument(help="the server's part of a deployment", show_default=False)]
Insist = Annotated[bool, typer.Option("--i-know", help="allow an insecure server that others can reach")]


def needs_flower(command: Callable[..., None]) -> Callable[..., None]:
    """Say in a line what to install, where Flower is not."""

    @wraps(command)
    def wrapped(**given: Any) -> None:
        if find_spec("flwr") is None:
            raise ConfigError("fedgala deploy needs Flower: pip install 'fedgala[flower]'")
        command(**given)

    return wrapped


@app.command()
@needs_flower
def init(
    folder: Annotated[Path, typer.Argument(help="a new folder", show_default=False)],
    sites: Annotated[str, typer.Option(help="names of the sites, with commas", show_default=False)],
    host: Annotated[str, typer.Option(help="name or address under which sites reach the server", show_default=False)],
    port: Annotated[int, typer.Option(help="port of the server")] = 8443,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="no TLS, no keys: for trying out on one machine")
    ] = False,
    i_know: Insist = False,
) -> None:
    """Make a deployment: keys, certificates, start scripts, and a page that says who copies what where.

    **fedgala deploy init hospital --sites north,south,west --host fl.example.org**
    """
    from fedgala.engines.flower.deployment import create

    server = create(folder, [name.strip() for name in sites.split(",")], host, port, not insecure, i_know)
    print(f"{folder}: server {server.address}, {len(server.sites)} sites")
    print(f"next: read {folder / 'README.md'}; keep {folder / 'ca.key'} away from all machines" * (not insecure))


@app.command()
@needs_flower
def superlink(folder: Folder, i_know: Insist = False) -> None:
    """Run the server of a deployment until interrupted; it is started again when it ends.

    **fedgala deploy superlink hospital/server**
    """
    from fedgala.engines.flower.deployment import read_server
    from fedgala.engines.flower.processes import run_superlink

    run_superlink(read_server(folder), i_know, say)


@app.command()
@needs_flower
def site(
    folder: Annotated[Path, typer.Argument(help="a site's part of a deployment", show_default=False)],
    data: Annotated[Path, typer.Option(help="folder or archive of the site's pictures", show_default=False)],
) -> None:
    """Take part as a site until interrupted. Pictures never leave; nothing listens here for others.

    **fedgala deploy site hospital/sites/north --data /pictures**
    """
    from fedgala.engines.flower.deployment import read_site
    from fedgala.engines.flower.processes import run_site

    run_site(read_site(folder), data, say)


def run(
    settings: dict[str, str],
    folder: Folder,
    preset: Annotated[str | None, typer.Option(help="how large and how long, as for train")] = None,
    method: Annotated[str | None, typer.Option(help="what is learnt and how it is combined, as for train")] = None,
    config: Annotated[Path | None, typer.Option(help="a TOML file with settings, as a run's config.toml")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="fail where there is nothing to go on with")] = False,
) -> None:
    """Train across the sites, and follow it. The same command goes on after any interruption.

    The server needs no pictures; with a labelled folder of its own (--data) and a domain in it (--target) it probes.

    **fedgala deploy run hospital/server --rounds 20 --min-sites 2**
    """
    from fedgala.engines.flower.deployment import read_server
    from fedgala.engines.flower.operate import operate
    from fedgala.engines.flower.settings import DeployConfig

    deploy = DeployConfig.from_dict(chosen(DeployConfig, settings))
    try:
        done = operate(read_server(folder), configuration(preset, method, config, settings), deploy, resume, say)
    except KeyboardInterrupt:
        say("stopped; the last whole round is saved. The same command goes on from there")
        raise typer.Exit(128 + signal.SIGINT) from None
    print(f"encoder  {done.encoder_path}")


def _with_deploy_settings() -> Callable[..., None]:
    if find_spec("flwr") is None:
        return needs_flower(with_settings(run))
    from fedgala.engines.flower.settings import DeployConfig

    return with_settings(run, DeployConfig)


app.command("run")(_with_deploy_settings())


@app.command()
@needs_flower
def status(
    folder: Folder, as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False
) -> None:
    """Say which sites are online, and how far each run is.

    **fedgala deploy status hospital/server**
    """
    from fedgala.engines.flower.deployment import read_server
    from fedgala.engines.flower.operate import status as ask
    from fedgala.report.tables import table

    found = ask(read_server(folder))
    if as_json:
        print(json.dumps(found))
        return
    online = sum(it["status"] == "online" for it in found["sites"])
    print(f"{found['server']}: {online} of {len(found['registered'])} sites online\n")
    rows = [[it["site"] or f"node {it['node']}", it["status"], it["since"]] for it in found["sites"]]
    print(table(["site", "status", "since"], rows), "\n")
    for name, it in found["runs"].items():
        took = f", {it['seconds']:.1f} s for the last" if it["round"] else ""
        print(f"{name}: {'finished' if it['finished'] else 'not finished'}, round {it['round']}{took}")
        rows = [
            [site, str(last), *(f"{it.get(key, {}).get(site, 0) / 1e6:.1f}" for key in ("sent", "received")),
             f"{it.get('site_seconds', {}).get(site, 0):.1f}", it.get("failed", {}).get(site, "")]
            for site, last in it["last_seen"].items()
        ]  # fmt: skip
        print(table(["site", "last round", "MB sent", "MB received", "seconds", "failed"], rows), "\n")


@app.command()
@needs_flower
def demo(
    out: Annotated[Path, typer.Option(help="where everything goes; emptied first")] = Path("deploy-demo"),
    rounds: Annotated[int, typer.Option(min=1, help="rounds of the run")] = 2,
) -> None:
    """See it work: a server and three sites as processes on this machine, with TLS and keys, beside one machine."""
    from fedgala.engines.flower.demo import demonstrate

    done, same = demonstrate(out, rounds, say)
    print(evaluation_line(done.records.read("evaluation")[-1]))
    print(f"encoder  {done.encoder_path}")
    print("the engine of one machine gives the same bits" if same else "the engine of one machine gives OTHER bits")
    raise typer.Exit(0 if same else 1)
