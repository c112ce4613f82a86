"""A deployment as a folder: what the server needs in one part, what each site needs in a part of its own.

``server/`` goes to the server, ``sites/NAME/`` to that site, and nothing else leaves the machine where it was made;
``ca.key`` signs further certificates and belongs in a safe. Secure is the default: TLS, and a key by which each site is
known. Without both, `--insecure`, a server listens on this machine only, unless one insists.
"""

import ipaddress
import json
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedgala import __version__
from fedgala.engines.flower import keys
from fedgala.engines.flower.files import COMPOSE, README, SCRIPT, UNIT
from fedgala.errors import ConfigError

SERVER_FILE, SITE_FILE = "server.toml", "site.toml"
APP = ("__init__.py", "client_app.py", "server_app.py")
PACKAGE = "fedgala_app"


@dataclass(frozen=True)
class Server:
    """The server's part of a deployment."""

    folder: Path
    host: str
    port: int
    sites: tuple[str, ...]
    secure: bool

    @property
    def address(self) -> str:
        """Where it is reached."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class SiteFolder:
    """A site's part of a deployment."""

    folder: Path
    name: str
    superlink: str
    secure: bool


def create(root: Path, sites: Sequence[str], host: str, port: int, secure: bool, insist: bool) -> Server:
    """Make the folder of a deployment.

    Raises:
        ConfigError: it is there already, a name can't be one, or an open server would be reached from elsewhere.
    """
    _check(root, sites, host, port)
    if not secure and not is_loopback(host) and not insist:
        raise ConfigError(
            f"--insecure with --host {host}: anyone on the network could read and change everything, and run code; "
            "leave --insecure away, use --host 127.0.0.1, or say --i-know"
        )
    root = root.resolve()  # Flower takes no relative paths
    server = Server(root / "server", host, port, tuple(sites), secure)
    (server.folder / "keys").mkdir(parents=True)
    for name in sites:
        (root / "sites" / name).mkdir(parents=True)
    if secure:
        _write_keys(root, server)
    _write_server(server)
    for name in sites:
        _write_site(SiteFolder(root / "sites" / name, name, server.address, secure))
    services = "".join(COMPOSE["site"].format(name=name) for name in sites)
    (root / "compose.yaml").write_text(COMPOSE["server"].format(port=port) + services)
    (root / "README.md").write_text(README.format(host=host, port=port, sites=", ".join(sites), first=sites[0]))
    return server


def read_server(folder: Path) -> Server:
    """The server's part at `folder`, or in it.

    Raises:
        ConfigError: it is not there, or not readable.
    """
    place = folder if (folder / SERVER_FILE).exists() else folder / "server"
    data = _read(place / SERVER_FILE)
    return Server(place.resolve(), data["host"], data["port"], tuple(data["sites"]), data["secure"])


def read_site(folder: Path) -> SiteFolder:
    """A site's part.

    Raises:
        ConfigError: it is not there, or not readable.
    """
    data = _read(folder / SITE_FILE)
    return SiteFolder(folder.resolve(), data["name"], data["superlink"], data["secure"])


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def write_app(folder: Path, config: dict[str, Any]) -> None:
    """The Flower app, which is ours by name only; `config` is what its run is."""
    (folder / PACKAGE).mkdir(parents=True, exist_ok=True)
    for name in APP:
        (folder / PACKAGE / name).write_text(_app_module(name))
    (folder / "pyproject.toml").write_text(app_project(config))


def app_project(config: dict[str, Any]) -> str:
    """The app's ``pyproject.toml``. It installs nothing: fedgala is what the machines have."""
    lines = [
        "[project]",
        'name = "fedgala-app"',
        f'version = "{__version__}"',
        'description = "FedGaLA on Flower; the machines have fedgala[flower] installed"',
        'license = "Apache-2.0"',
        "dependencies = []",
        "",
        "[tool.flwr.app]",
        'publisher = "fedgala"',
        "",
        "[tool.flwr.app.components]",
        f'serverapp = "{PACKAGE}.server_app:app"',
        f'clientapp = "{PACKAGE}.client_app:app"',
        "",
        "[tool.flwr.app.config]",
        *(f"{_key(name)} = {json.dumps(value)}" for name, value in config.items()),
    ]
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return json.dumps(name) if "." in name else name


def _app_module(name: str) -> str:
    role = {"server_app.py": "server", "client_app.py": "client"}.get(name)
    if role is None:
        return '"""fedgala as a Flower app."""\n'
    lines = [f'"""The {role} of a run: that of fedgala."""', "", f"from fedgala.engines.flower.{role} import app", ""]
    return "\n".join([*lines, '__all__ = ["app"]', ""])


def _write_keys(root: Path, server: Server) -> None:
    issuer = keys.authority(root / "ca.key", server.folder / "ca.crt")
    local = ["localhost", "127.0.0.1"]
    hosts = [server.host, *(host for host in local if host != server.host)]
    keys.server_certificate(hosts, issuer, server.folder / "server.key", server.folder / "server.pem")
    for name in server.sites:
        place = root / "sites" / name
        keys.site_key(place / "site.key", server.folder / "keys" / f"{name}.pub")
        (place / "ca.crt").write_bytes((server.folder / "ca.crt").read_bytes())


def _write_server(server: Server) -> None:
    told = {"host": server.host, "port": server.port, "sites": list(server.sites), "secure": server.secure}
    (server.folder / SERVER_FILE).write_text("".join(f"{k} = {json.dumps(v)}\n" for k, v in told.items()))
    _script(server.folder / "superlink.sh", "superlink", "the server")
    _unit(server.folder, "fedgala-superlink", "server", "superlink /opt/fedgala/server")


def _write_site(site: SiteFolder) -> None:
    told = {"name": site.name, "superlink": site.superlink, "secure": site.secure}
    (site.folder / SITE_FILE).write_text("".join(f"{k} = {json.dumps(v)}\n" for k, v in told.items()))
    _script(site.folder / "site.sh", "site", f"the site {site.name}")
    command = f"site /opt/fedgala/{site.name} --data /data/pictures"
    _unit(site.folder, f"fedgala-site-{site.name}", f"site {site.name}", command)


def _unit(folder: Path, name: str, what: str, command: str) -> None:
    (folder / f"{name}.service").write_text(UNIT.format(name=name, what=what, command=command))


def _script(path: Path, command: str, what: str) -> None:
    path.write_text(SCRIPT.format(command=command, what=what))
    path.chmod(0o755)


def _check(root: Path, sites: Sequence[str], host: str, port: int) -> None:
    if root.exists() and any(root.iterdir()):
        raise ConfigError(f"{root} is not empty: name a new folder, keys are never overwritten")
    if not sites or len(set(sites)) != len(sites):
        raise ConfigError(f"--sites {','.join(sites)}: name each site once, with commas between")
    for name in sites:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,40}", name):
            raise ConfigError(f"--sites: {name!r} is not a name: letters, digits, - and _, at most 41")
    if not re.fullmatch(r"[A-Za-z0-9.:-]+", host) or host in ("0.0.0.0", "::"):
        raise ConfigError(f"--host {host}: the name or address under which the sites reach the server")
    if not 0 < port < 65536:
        raise ConfigError(f"--port {port}: 1 to 65535")


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; `fedgala deploy init` makes such a folder") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
