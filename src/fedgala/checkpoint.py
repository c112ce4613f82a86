"""A run's state between two rounds, as named tensors: the global model, the reference, and every client's own state."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from fedgala.errors import CheckpointError
from fedgala.messages import LocalState, ServerState
from fedgala.parameters import Layout
from fedgala.storage import KEPT, load_tensors, save_tensors

FORMAT = "1"


@dataclass(frozen=True)
class Snapshot:
    """Everything that the next round depends on."""

    state: ServerState
    clients: Mapping[str, LocalState]


@dataclass(frozen=True)
class Layouts:
    """Where the tensors of a model lie: its parameters, and its statistics."""

    weights: Layout
    statistics: Layout

    def of(self, name: str) -> Layout | None:
        """The layout of a vector by its role; None for what has no names inside."""
        return {"steps": None, "statistics": self.statistics}.get(name, self.weights)


def save(path: Path, snapshot: Snapshot, layouts: Layouts, metadata: Mapping[str, str]) -> None:
    """Write the snapshot, whole or not at all."""
    state = snapshot.state
    vectors = {"weights": state.weights, "statistics": state.statistics}
    if state.reference is not None:
        vectors["reference"] = state.reference
    tensors = dict(_named("server", vectors, layouts))
    for client, local in snapshot.clients.items():
        tensors.update(_named(f"client/{client}", local.tensors(), layouts))
    save_tensors(path, tensors, {**metadata, "format": FORMAT, "round": str(state.round)})


def save_local(path: Path, state: LocalState, layouts: Layouts, metadata: Mapping[str, str]) -> None:
    """Write one client's own state, as it keeps it where it is: whole or not at all."""
    save_tensors(path, dict(_named("client", state.tensors(), layouts)), {**metadata, "format": FORMAT})


def load_local(path: Path, layouts: Layouts, metadata: Mapping[str, str]) -> LocalState:
    """Read one client's own state back.

    Raises:
        CheckpointError: damaged, of another format, or its metadata differ from `metadata`.
    """
    tensors, found = load_tensors(path)
    _expect(path, found, metadata)
    try:
        return LocalState.from_tensors(_gathered("client", tensors, layouts))
    except (KeyError, ValueError) as error:
        raise CheckpointError(f"{path} does not fit this model ({error}); {KEPT}") from error


def load(path: Path, layouts: Layouts, metadata: Mapping[str, str]) -> Snapshot:
    """Read a snapshot back.

    Raises:
        CheckpointError: damaged, of another format, or its metadata differ from `metadata`.
    """
    tensors, found = load_tensors(path)
    _expect(path, found, metadata)
    try:
        server = _gathered("server", tensors, layouts)
        state = ServerState(int(found["round"]), server["weights"], server["statistics"], server.get("reference"))
        names = sorted({name.split("/")[1] for name in tensors if name.startswith("client/")})
        clients = {name: LocalState.from_tensors(_gathered(f"client/{name}", tensors, layouts)) for name in names}
    except (KeyError, ValueError) as error:
        raise CheckpointError(f"{path} does not fit this model ({error}); {KEPT}") from error
    return Snapshot(state, clients)


def _expect(path: Path, found: Mapping[str, str], metadata: Mapping[str, str]) -> None:
    for name, expected in {**metadata, "format": FORMAT}.items():
        if found.get(name) != expected:
            raise CheckpointError(
                f"{path} belongs to another {name} ({found.get(name)}, now {expected}); "
                "move its folder away, or choose another --name, to start afresh"
            )


def _named(prefix: str, vectors: Mapping[str, Tensor], layouts: Layouts) -> Iterator[tuple[str, Tensor]]:
    for role, vector in vectors.items():
        layout = layouts.of(role)
        if layout is None or not vector.numel():
            yield f"{prefix}/{role}", vector
        else:
            for name, tensor in layout.views(vector).items():
                yield f"{prefix}/{role}/{name}", tensor


def _gathered(prefix: str, tensors: Mapping[str, Tensor], layouts: Layouts) -> dict[str, Tensor]:
    roles: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        if key.startswith(f"{prefix}/"):
            role, _, name = key.removeprefix(f"{prefix}/").partition("/")
            roles.setdefault(role, {})[name] = tensor
    out: dict[str, Tensor] = {}
    for role, named in roles.items():
        layout = layouts.of(role)
        if layout is None or "" in named:
            out[role] = named[""].to(layouts.weights.device)
        else:
            out[role] = layout.flatten(named)
    return out
