"""What an operator asks of a running server, through Flower's own command line."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedgala.engines.flower.deployment import Server
from fedgala.errors import FedgalaError

CONNECTION = "fedgala"  # its name in the server's ``flwr/config.toml``
LONGEST = 120.0  # seconds for one command


def flower(name: str) -> str:
    """The path of one of Flower's programs, which lie beside this Python."""
    found = Path(sys.executable).parent / name
    return str(found) if found.exists() else name


def environment(home: Path) -> dict[str, str]:
    """What Flower's programs see: a home of the deployment's own, no telemetry, this Python's programs first."""
    paths = [str(Path(sys.executable).parent), *filter(None, [os.environ.get("PATH")])]
    told = {"FLWR_HOME": str(home), "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    return {**os.environ, **told, "PATH": os.pathsep.join(paths)}


@dataclass(frozen=True)
class Control:
    """Commands for one server."""

    server: Server
    environment: Mapping[str, str]

    def connect(self) -> None:
        """Write how ``flwr`` reaches the server: absolute paths, so they are of the machine that asks."""
        server, home = self.server, self.server.folder / "flwr"
        security = (
            f"root-certificates = {json.dumps(str(server.folder / 'ca.crt'))}" if server.secure else "insecure = true"
        )
        lines = ["[superlink]", f'default = "{CONNECTION}"', f"[superlink.{CONNECTION}]"]
        home.mkdir(exist_ok=True)
        (home / "config.toml").write_text("\n".join([*lines, f'address = "{server.address}"', security, ""]))

    def ask(self, *words: str) -> dict[str, Any]:
        """The JSON that a ``flwr`` command prints.

        Raises:
            FedgalaError: it failed; the message is its last line.
        """
        self.connect()
        command = [flower("flwr"), *words, CONNECTION, "--format", "json"]
        try:
            done = subprocess.run(
                command, env=dict(self.environment), capture_output=True, text=True, timeout=LONGEST, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise FedgalaError(f"flwr {words[0]}: no answer from {self.server.address} in {LONGEST:.0f} s") from error
        start = done.stdout.find("{")
        try:
            found = json.loads(done.stdout[start:]) if start >= 0 else {"success": done.returncode == 0}
        except json.JSONDecodeError:
            found = {}
        if done.returncode or not found.get("success", True):
            text = str(found.get("error-message") or done.stderr or done.stdout).strip()
            if "unavailable" in text:
                how = f"`fedgala deploy superlink {self.server.folder}` runs it"
                raise FedgalaError(f"no server answers at {self.server.address}; {how}")
            raise FedgalaError(f"flwr {words[0]}: {text.splitlines()[-1] if text else 'failed without a word'}")
        return dict(found)

    def register_all(self) -> None:
        """Make the sites' keys known; those that are known already stay so."""
        for key in sorted((self.server.folder / "keys").glob("*.pub")):
            try:
                self.ask("supernode", "register", str(key), "--name", key.stem)
            except FedgalaError as error:
                if "already" not in str(error).lower():
                    raise

    def submit(self, app: Path) -> int:
        """Start a run of the app; its number in Flower."""
        return int(self.ask("run", str(app))["run-id"])

    def run(self, number: int) -> dict[str, Any]:
        """What Flower says of a run."""
        found = self.ask("list", "--run-id", str(number))["runs"]
        return dict(found[0]) if found else {}

    def stop(self, number: int) -> None:
        """End a run."""
        self.ask("stop", str(number))

    def nodes(self) -> list[dict[str, Any]]:
        """What Flower says of the nodes that it knows."""
        return list(self.ask("supernode", "list")["nodes"])
