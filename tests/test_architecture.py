"""What may lean on what, and what a light installation needs: rules of the house, as tests."""

import ast
import importlib.metadata as metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "fedgala"
MATHS = {"parameters", "alignment", "optim", "aggregation", "entry", "data.augment", "probe", "monitor"}
MATHS |= {f"ssl.{name}" for name in ("losses", "base", "simclr", "moco", "byol", "simsiam", "adco", "darling", "fedx")}
MATHS |= {"ssl.supervised", "ssl"}
LEAVES = ("engines", "report", "services", "studies", "cli")
OUTER = ("api", "studies", "cli", "__init__")  # where everything comes together
LIGHT = {"torch", "numpy", "PIL", "safetensors"}


def modules() -> dict[str, ast.Module]:
    return {
        ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): ast.parse(path.read_text())
        for path in SOURCE.rglob("*.py")
    }


def imports(tree: ast.AST) -> set[str]:
    """Modules that a module imports, and names from modules, which may be modules too."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def inside(tree: ast.AST, known: set[str]) -> set[str]:
    """The modules of this package that a module imports."""
    names = {name.removeprefix("fedgala.") for name in imports(tree) if name.startswith("fedgala.")}
    return {name if name in known else name.rpartition(".")[0] for name in names}


def test_mathematics_imports_torch_and_mathematics_only() -> None:
    trees = modules()
    for name in MATHS:
        outside = {n.split(".")[0] for n in imports(trees[name])} - {"fedgala", "torch"} - sys.stdlib_module_names
        assert not outside, f"{name} imports {outside}"
        assert inside(trees[name], set(trees)) <= MATHS | {"errors"}, name


def test_nothing_but_the_outermost_modules_imports_a_leaf() -> None:
    trees = modules()
    for name, tree in trees.items():
        if name.split(".")[0] not in (*OUTER, *LEAVES):
            leaning = {n for n in inside(tree, set(trees)) if n.split(".")[0] in LEAVES}
            assert not leaning, f"{name} leans on {leaning}"


def test_only_the_flower_engine_knows_flower_and_its_client_waits_for_no_torch() -> None:
    trees = modules()
    for name, tree in trees.items():
        if not name.startswith("engines.flower"):
            assert "flwr" not in {found.split(".")[0] for found in imports(tree)}, name
    code = "import sys, fedgala.engines.flower.client, fedgala.engines.flower.warm; sys.exit('torch' in sys.modules)"
    pytest.importorskip("flwr", reason="needs fedgala[flower]")
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_there_is_no_cycle() -> None:
    trees = modules()
    graph = {name: inside(tree, set(trees)) - {name} for name, tree in trees.items()}
    while graph:
        free = {name for name, needs in graph.items() if not needs & set(graph)}
        assert free, f"cycle among {sorted(graph)}"
        graph = {name: needs for name, needs in graph.items() if name not in free}


def test_no_method_or_rule_is_a_branch() -> None:
    words = {"simclr", "discard", "reweight", "project", "agreement", "fedavg", "adam", "sgd", "ldawa", "feddgga"}
    words |= {"moco", "byol", "simsiam", "adco", "darling", "fedx", "ema"}
    for name, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Compare):
                compared = {c.value for c in [node.left, *node.comparators] if isinstance(c, ast.Constant)}
                assert not compared & words or name == "config", f"{name}:{node.lineno} branches on {compared & words}"


LIGHT_RUN = """
import sys, importlib.abc
class Block(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"blocked: {name}", name=name)
BLOCKED = set(sys.argv[1].split(","))
sys.meta_path.insert(0, Block())
import fedgala
notes = []
class Watch(fedgala.Observer):
    def note(self, line): notes.append(line)
config = fedgala.RunConfig.from_dict({
    "out": sys.argv[2], "data": {"path": sys.argv[3], "target": "plain", "size": 24}, "views": {"crop": 16},
    "model": {"encoder": "small", "projector_hidden": 16, "projector_output": 8},
    "federation": {"rounds": 1, "batch_size": 8, "epochs": 1}, "probe": {"epochs": 2, "splits": 2},
})
run = fedgala.train(config, Watch())
assert run.finished and notes == ["no plots: matplotlib is not installed"], notes
assert fedgala.load_encoder(run.encoder_path).features
"""


def normal(requirement: str) -> str:
    """The name of a package in a line such as ``Typing_extensions>=4; python_version < "4"``."""
    found = re.match(r"[\w.-]+", requirement)
    assert found
    return found.group().lower().replace("_", "-")


def test_training_needs_torch_numpy_pillow_and_safetensors_only(tmp_path: Path, folder: Path) -> None:
    packages = metadata.packages_distributions()
    installed = {normal(owner) for owners in packages.values() for owner in owners}
    allowed: set[str] = set()
    queue = ["torch", "numpy", "pillow", "safetensors"]
    while queue:
        name = queue.pop()
        if name not in allowed and name in installed:
            queue += [normal(line) for line in metadata.requires(name) or () if "extra ==" not in line]
        allowed.add(name)
    blocked = {
        module
        for module, owners in packages.items()
        if not {normal(owner) for owner in owners} & (allowed | {"fedgala"})
    }
    assert {"typer", "rich", "matplotlib"} <= blocked and not LIGHT & blocked
    command = [sys.executable, "-c", LIGHT_RUN, ",".join(blocked), str(tmp_path / "runs"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_import_is_fast_and_pulls_in_nothing_heavy() -> None:
    code = (
        "import time; import torch; began = time.process_time(); import fedgala; fedgala.RunConfig; fedgala.train;"
        "print(time.process_time() - began); import sys;"  # of this process: others may be busy
        "print(*[n for n in ('matplotlib', 'typer', 'rich', 'pyarrow', 'datasets', 'flwr') if n in sys.modules])"
    )
    best = 9.0
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
        seconds, *heavy = done.stdout.split()
        assert not heavy
        best = min(best, float(seconds))
    assert best <= 0.3


@pytest.mark.parametrize("name", ["train", "load_encoder", "RunConfig", "Run", "PRESETS"])
def test_public_names_are_there(name: str) -> None:
    import fedgala

    assert name in fedgala.__all__ and getattr(fedgala, name)
    with pytest.raises(AttributeError, match="no attribute"):
        fedgala.nonsense  # noqa: B018
