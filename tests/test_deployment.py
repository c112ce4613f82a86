"""A deployment's folder: what is in which part, who may read it, and that the keys do what they are for."""

import datetime
import json
import re
import runpy
import shutil
import socket
import ssl
import stat
import subprocess
import threading
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="deployments need fedgala[flower]")

from flwr.common.config import flatten_dict

from fedgala.cli.app import run as command
from fedgala.config import RunConfig
from fedgala.engines.flower import keys
from fedgala.engines.flower.deployment import Server, app_project, create, is_loopback, read_server, read_site
from fedgala.engines.flower.operate import Tail, told
from fedgala.engines.flower.processes import free_port, superlink_command, supernode_command
from fedgala.engines.flower.server import configurations
from fedgala.errors import ConfigError

ROOT = Path(__file__).parents[1]


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return create(tmp_path / "d", ["north", "south"], "fl.example.org", 8443, secure=True, insist=False)


def files(root: Path) -> dict[str, int]:
    return {str(p.relative_to(root)): stat.S_IMODE(p.stat().st_mode) for p in sorted(root.rglob("*")) if p.is_file()}


def test_each_part_holds_what_its_machine_needs_and_secrets_are_private(server: Server, tmp_path: Path) -> None:
    found = files(tmp_path / "d")
    private = {name for name, mode in found.items() if mode & 0o077 == 0}
    assert private == {"ca.key", "server/server.key", "sites/north/site.key", "sites/south/site.key"}
    parts = {"README.md", "compose.yaml", "server/ca.crt", "server/server.pem", "server/keys/north.pub"}
    parts |= {"server/keys/south.pub", "server/superlink.sh", "server/fedgala-superlink.service", "server/server.toml"}
    parts |= {f"sites/{s}/{f}" for s in ("north", "south") for f in ("ca.crt", "site.sh", "site.toml")}
    parts |= {f"sites/{s}/fedgala-site-{s}.service" for s in ("north", "south")}
    assert set(found) == parts | private
    text = "".join((tmp_path / "d" / name).read_text() for name in parts)
    assert "PRIVATE" not in text


def test_parts_are_read_where_they_were_copied_to(server: Server, tmp_path: Path) -> None:
    (tmp_path / "d" / "server").rename(tmp_path / "elsewhere")
    (tmp_path / "d" / "sites" / "south").rename(tmp_path / "there")
    moved, site = read_server(tmp_path / "elsewhere"), read_site(tmp_path / "there")
    assert (moved.address, moved.sites, moved.secure) == ("fl.example.org:8443", ("north", "south"), True)
    assert (site.name, site.superlink, site.secure) == ("south", "fl.example.org:8443", True)
    assert str(tmp_path / "elsewhere" / "server.key") in superlink_command(moved)
    node = supernode_command(site, Path('/pictures of "south"'))
    assert "--insecure" not in node and str(tmp_path / "there" / "site.key") in node
    assert json.dumps('/pictures of "south"') in (tmp_path / "there" / "node.toml").read_text()


def test_a_deployment_made_here_is_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = create(Path("d"), ["north"], "127.0.0.1", 8443, secure=True, insist=False)
    assert made == read_server(Path("d")) and made.folder == tmp_path / "d" / "server"


def handshake(authority: Path, certificate: tuple[Path, Path], name: str) -> str:
    """What a client that trusts `authority` makes of a server with this certificate when it calls it `name`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    one, other = socket.socketpair()

    def serve() -> None:
        try:
            context.wrap_socket(one, server_side=True).close()
        except (ssl.SSLError, OSError):
            one.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        trusting = ssl.create_default_context(cafile=str(authority))
        trusting.verify_flags |= ssl.VERIFY_X509_STRICT  # the default from Python 3.13 on
        with trusting.wrap_socket(other, server_hostname=name):
            return "trusted"
    except ssl.SSLCertVerificationError as error:
        return error.verify_message
    finally:
        other.close()
        thread.join(5)


def test_the_certificate_is_of_the_server_alone(server: Server, tmp_path: Path) -> None:
    own = server.folder / "server.pem", server.folder / "server.key"
    for name in ("fl.example.org", "localhost", "127.0.0.1"):
        assert handshake(server.folder / "ca.crt", own, name) == "trusted"
    assert "Hostname mismatch" in handshake(server.folder / "ca.crt", own, "other.example.org")
    other = create(tmp_path / "other", ["x"], "fl.example.org", 8443, secure=True, insist=False)
    assert "unable to get local issuer" in handshake(other.folder / "ca.crt", own, "fl.example.org")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_the_page_says_how_a_new_certificate_is_signed(server: Server, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "deploy.md").read_text()
    (lines,) = re.findall(r"```bash\n(cd hospitals\n.*?)```", page, re.DOTALL)
    (tmp_path / "d").rename(tmp_path / "hospitals")
    here = tmp_path / "hospitals" / "server"
    before = (here / "server.pem").read_bytes()
    done = subprocess.run(["bash", "-ec", lines], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (here / "server.pem").read_bytes() != before
    for name in ("fl.example.org", "127.0.0.1"):
        assert handshake(here / "ca.crt", (here / "server.pem", here / "server.key"), name) == "trusted"


def test_keys_of_sites_are_ssh_keys_on_the_curve_that_flower_takes(server: Server, tmp_path: Path) -> None:
    public = (server.folder / "keys" / "north.pub").read_text()
    assert public.startswith("ecdsa-sha2-nistp384 ")
    private = (tmp_path / "d" / "sites" / "north" / "site.key").read_text()
    assert private.startswith("-----BEGIN OPENSSH PRIVATE KEY-----")
    assert public != (server.folder / "keys" / "south.pub").read_text()


@pytest.mark.parametrize(
    ("host", "local"), [("127.0.0.1", True), ("localhost", True), ("::1", True), ("10.0.0.3", False), ("x.org", False)]
)
def test_insecure_is_for_this_machine_unless_one_insists(tmp_path: Path, host: str, local: bool) -> None:
    assert is_loopback(host) is local

    def make(name: str, insist: bool) -> Server:
        return create(tmp_path / name, ["a"], host, 8000, secure=False, insist=insist)

    if not local:
        with pytest.raises(ConfigError, match="--insecure with --host .*say --i-know"):
            make("refused", insist=False)
        assert not (tmp_path / "refused").exists()
    server = make("made", insist=True)
    assert "--insecure" in superlink_command(server) and not list(tmp_path.rglob("*.key"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["init", "{}/full", "--sites", "a", "--host", "h"], "full is not empty"),
        (["init", "{}/new", "--sites", "a,a", "--host", "h"], "name each site once"),
        (["init", "{}/new", "--sites", "a/b", "--host", "h"], "'a/b' is not a name"),
        (["init", "{}/new", "--sites", "a", "--host", "0.0.0.0"], "under which the sites reach the server"),
        (["init", "{}/new", "--sites", "a", "--host", "h", "--port", "70000"], "--port 70000: 1 to 65535"),
        (["superlink", "{}/full"], "server.toml: No such file"),
        (["site", "{}/full", "--data", "{}"], "site.toml: No such file"),
        (["run", "{}/full"], "server.toml: No such file"),
        (["status", "{}/full"], "server.toml: No such file"),
        (["run", "{}/full", "--min-sites", "0"], "deploy.min_sites = 0: must be at least 1"),
        (["run", "{}/full", "--transport", "int8"], "deploy.transport = 'int8': "),
    ],
)
def test_mistakes_are_one_line(
    tmp_path: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    assert command(["deploy", *(word.format(tmp_path) for word in words)]) == 2
    said = capsys.readouterr().err.strip()
    assert message in said and "\n" not in said


def made(tmp_path: Path, **over: int) -> Server:
    """A deployment on this machine, on a port that nobody uses."""
    return create(tmp_path / "d", ["a"], "127.0.0.1", over.get("port", free_port()), secure=True, insist=False)


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line with which a command ends."""
    assert command(["deploy", *words]) == 2
    said = capsys.readouterr().err.strip()
    assert "\n" not in said
    return said


def test_a_port_that_is_taken_a_certificate_out_of_date_and_a_key_for_all_to_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = made(tmp_path, port=taken.getsockname()[1])
        assert "can't be used: address already in use" in refused(["superlink", str(server.folder)], capsys)
    (server.folder / "server.key").chmod(0o644)
    assert "server.key can be read by others: chmod 600" in refused(["superlink", str(server.folder)], capsys)
    (server.folder / "server.key").unlink()
    assert "server.key: No such file" in refused(["superlink", str(server.folder)], capsys)
    monkeypatch.setattr(keys, "YEARS", 0)
    other = create(tmp_path / "old", ["a"], "127.0.0.1", free_port(), secure=True, insist=False)
    monkeypatch.setattr(datetime, "datetime", Later)
    assert "server.pem is valid from" in refused(["superlink", str(other.folder)], capsys)
    (other.folder / "server.pem").write_text("no certificate")
    assert "server.pem is not a certificate" in refused(["superlink", str(other.folder)], capsys)


class Later(datetime.datetime):
    """A clock that is an hour ahead."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> "Later":
        return super().now(tz) + datetime.timedelta(hours=1)


def test_a_site_without_pictures_or_without_its_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(tmp_path)
    site = tmp_path / "d" / "sites" / "a"
    (tmp_path / "empty").mkdir()
    words = ["site", str(site), "--data", str(tmp_path / "empty")]
    assert f"--data {tmp_path / 'empty'}: there are no pictures in it" in refused(words, capsys)
    (tmp_path / "empty" / "a.png").touch()
    (site / "site.key").unlink()
    assert "site.key: No such file or directory; copy the whole part" in refused(words, capsys)


@pytest.mark.parametrize("words", [["status"], ["run", "--rounds", "1"]])
def test_a_server_that_does_not_run(tmp_path: Path, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    server = made(tmp_path)
    said = refused([words[0], str(server.folder), *words[1:]], capsys)
    assert f"no server answers at {server.address}; `fedgala deploy superlink {server.folder}` runs it" in said


def test_status_names_the_sites(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server = create(tmp_path / "d", ["east", "north", "south"], "127.0.0.1", 8000, secure=False, insist=False)
    times = {"online-at": "09:00", "offline-at": "10:00"}
    nodes = [{"node-id": "7", "status": "online", **times}, {"node-id": "8", "status": "offline", **times}]
    monkeypatch.setattr("fedgala.engines.flower.control.Control.nodes", lambda self: nodes)
    place = server.folder / "runs" / "a-1"
    place.mkdir(parents=True)
    (place / "config.toml").touch()
    first = {"kind": "round", "round": 1, "clients": {"north": {}, "south": {}}, "nodes": {"north": "7", "south": "8"}}
    last = {"kind": "round", "round": 2, "clients": {"north": {}}, "nodes": {"north": "7"}, "seconds": 4.0}
    last |= {"sent": {"north": 3_000_000}, "received": {"north": 2_000_000}, "site_seconds": {"north": 2.5}}
    last |= {"failed": {"south": "no answer in 30 s"}}
    (place / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in (first, last)))
    assert command(["deploy", "status", str(server.folder)]) == 0
    said = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert said[0] == ["127.0.0.1:8000:", "1", "of", "3", "sites", "online"]
    assert ["east", "never", "seen"] in said
    assert ["north", "online", "09:00"] in said and ["south", "offline", "10:00"] in said
    assert ["a-1:", "not", "finished,", "round", "2,", "4.0", "s", "for", "the", "last"] in said
    assert ["north", "2", "3.0", "2.0", "2.5"] in said
    assert ["south", "1", "0.0", "0.0", "0.0", "no", "answer", "in", "30", "s"] in said


def test_status_before_the_first_run_knows_numbers_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server = create(tmp_path / "d", ["north", "south"], "127.0.0.1", 8000, secure=False, insist=False)
    nodes = [{"node-id": "7", "status": "online", "online-at": "09:00"}]
    monkeypatch.setattr("fedgala.engines.flower.control.Control.nodes", lambda self: nodes)
    assert command(["deploy", "status", str(server.folder)]) == 0
    said = capsys.readouterr().out
    assert "1 of 2 sites online" in said and "node 7" in said and "north" not in said


def test_pictures_that_are_not_there_and_going_on_with_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    create(tmp_path / "d", ["a"], "127.0.0.1", 8000, secure=False, insist=False)
    assert command(["deploy", "site", str(tmp_path / "d/sites/a"), "--data", str(tmp_path / "no")]) == 2
    assert "there is no such folder or archive" in capsys.readouterr().err
    assert command(["deploy", "run", str(tmp_path / "d/server"), "--resume"]) == 2
    assert "has no checkpoint; the same command without it starts the run" in capsys.readouterr().err


def test_the_example_app_is_the_one_that_deployments_use() -> None:
    app = ROOT / "examples" / "flower_app"
    given = app_project({}).split("[tool.flwr.app.config]")[0]
    text = (app / "pyproject.toml").read_text()
    assert text.startswith(given)
    config, settings = configurations(flatten_dict(tomllib.loads(text)["tool"]["flwr"]["app"]["config"]))
    assert config.model.encoder == "small" and config.data.target == "sketch" and settings.sites == 3
    for role in ("server", "client"):
        assert f"from fedgala.engines.flower.{role} import app" in (app / "fedgala_app" / f"{role}_app.py").read_text()


@pytest.mark.parametrize(
    ("unit", "said"),
    [
        ("server/fedgala-superlink.service", "/opt/fedgala/server/server/server.toml: No such file"),
        ("sites/north/fedgala-site-north.service", "/opt/fedgala/north/site.toml: No such file"),
    ],
)
def test_units_start_what_there_is(server: Server, unit: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = server.folder.parent / unit
    (line,) = (line for line in path.read_text().splitlines() if line.startswith("ExecStart="))
    assert command(line.split()[1:]) == 2 and said in capsys.readouterr().err
    assert f"systemctl enable --now {path.stem}" in path.read_text()


def test_the_page_shows_the_costs_that_were_measured() -> None:
    """Made by ``python benchmarks/deploy.py --json results/bench/deploy.json --page docs/deploy.md``."""
    benchmark = runpy.run_path(str(ROOT / "benchmarks" / "deploy.py"))
    kept = json.loads((ROOT / "results" / "bench" / "deploy.json").read_text())
    assert len(kept["found"]) == 4 * len(benchmark["MODELS"]) and all(it["seconds"] for it in kept["found"])
    page = (ROOT / "docs" / "deploy.md").read_text()
    shown = page.split(benchmark["BEGIN"])[1].split(benchmark["END"])[0].strip()
    assert shown == benchmark["page_table"](kept)


def test_scripts_are_shell(server: Server) -> None:
    for path in (server.folder / "superlink.sh", server.folder.parent / "sites" / "north" / "site.sh"):
        subprocess.run(["sh", "-n", str(path)], check=True)


def test_what_the_operator_reads(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text('{"event": "old"}\n')
    tail = Tail(log)
    assert list(tail.new()) == []
    event = {"event": "round", "round": 3, "loss": 4.5, "seconds": 2.0, "failed": {"b": "not online"}}
    event |= {"sent": {"a": 2_000_000}, "received": {"a": 1_000_000}}
    with log.open("a") as file:
        file.write(json.dumps(event) + '\n{"event": "note", "te')
    assert list(tail.new()) == [event]
    assert told(event) == "round 3  loss 4.500  failed b (not online)  2.0 MB sent, 1.0 MB received  2.0 s"
    with log.open("a") as file:
        file.write('xt": "hello"}\n')
    assert [told(found) for found in tail.new()] == ["hello"]


def test_without_flower_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hide: Callable[[str], None] = lambda name: None  # noqa: E731
    monkeypatch.setattr("fedgala.cli.deploy.find_spec", hide)
    assert command(["deploy", "status", "x"]) == 2
    assert capsys.readouterr().err == "fedgala: fedgala deploy needs Flower: pip install 'fedgala[flower]'\n"


def test_a_run_of_a_deployment_is_a_run(server: Server) -> None:
    assert RunConfig.from_dict(json.loads(json.dumps(RunConfig().to_dict()))) == RunConfig()
    assert '"federation.rounds" = 3' in app_project({"federation.rounds": 3})
