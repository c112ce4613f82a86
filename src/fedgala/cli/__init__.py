"""The command ``fedgala``: typer commands over the same configuration that Python uses.

Typer, because it is what people who come from Flower know, and because its help, grouped by section, can teach. It sees
nothing but text: every value is parsed and checked by the configuration itself, so that a mistake reads the same in
Python, in TOML and on the command line.
"""

import io
import sys


def main() -> None:
    """Run the command line and exit."""
    try:
        from fedgala.cli.app import run
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit(
            f"fedgala: the command line needs {error.name} (pip install {error.name}); fedgala.train works without"
        )
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # not closed; a terminal that lacks a character shows its code
            stream.reconfigure(errors="backslashreplace")
    sys.exit(run(sys.argv[1:]))
