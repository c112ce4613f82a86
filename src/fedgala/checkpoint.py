"""A run's state between two rounds, as named tensors: the global model, the reference, and every client's own state."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from fedgala.errors import CheckpointError
from fedgala.messages import LocalState, ServerState
from fedgala.parameters import Layout, Layouts
from fedgala.storage import KEPT, load_tensors, save_tensors

FORMAT = "2"
SHARE = "share-"  # before a client's name, where the server remembers its weight


@dataclass(frozen=True)
class Snapshot:
    """Everything that the next round depends on."""

    state: ServerState
    clients: Mapping[str, LocalState]


def save(path: Path, snapshot: Snapshot, layouts: Layouts, metadata: Mapping[str, str]) -> None:
    """Write the snapshot, whole or not at all."""
    state = snapshot.state
    vectors = {"weights": state.weights, "statistics": state.statistics}
    if state.reference is not None:
        vectors["reference"] = state.reference
    shares = {SHARE + name: torch.tensor([share], dtype=torch.float64) for name, share in state.shares.items()}
    tensors = dict(_named("server", vectors | shares, _of_server(layouts)))
    for client, local in snapshot.clients.items():
        tensors.update(_named(f"client/{client}", local.tensors(), _of_client(layouts)))
    save_tensors(path, tensors, {**metadata, "format": FORMAT, "round": str(state.round)})


def save_local(path: Path, state: LocalState, layouts: Layouts, metadata: Mapping[str, str]) -> None:
    """Write one client's own state, as it keeps it where it is: whole or not at all."""
    save_tensors(path, dict(_named("client", state.tensors(), _of_client(layouts))), {**metadata, "format": FORMAT})


def load_local(path: Path, layouts: Layouts, metadata: Mapping[str, str]) -> LocalState:
    """Read one client's own state back.

    Raises:
        CheckpointError: damaged, of another format, or its metadata differ from `metadata`.
    """
    tensors, found = load_tensors(path)
    _expect(path, found, metadata)
    try:
        return _client("client", tensors, layouts)
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
        server = _gathered("server", tensors, _of_server(layouts), layouts.weights.device)
        shares = {name.removeprefix(SHARE): float(it) for name, it in server.items() if name.startswith(SHARE)}
        vectors = server["weights"], server["statistics"], server.get("reference")
        state = ServerState(int(found["round"]), *vectors, shares)
        names = sorted({name.split("/")[1] for name in tensors if name.startswith("client/")})
        clients = {name: _client(f"client/{name}", tensors, layouts) for name in names}
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


Roles = Mapping[str, Layout]  # the layout of a vector by its role; what has no names inside has none


def _of_server(layouts: Layouts) -> Roles:
    return {"weights": layouts.weights, "reference": layouts.weights, "statistics": layouts.statistics}


def _of_client(layouts: Layouts) -> Roles:
    trained = dict.fromkeys(("first", "second", "own"), layouts.trainable)
    return {**trained, "statistics": layouts.statistics, "private": layouts.private}


def _client(prefix: str, tensors: Mapping[str, Tensor], layouts: Layouts) -> LocalState:
    return LocalState.from_tensors(_gathered(prefix, tensors, _of_client(layouts), layouts.weights.device))


def _named(prefix: str, vectors: Mapping[str, Tensor], roles: Roles) -> Iterator[tuple[str, Tensor]]:
    for role, vector in vectors.items():
        layout = roles.get(role)
        if layout is None or not vector.numel():
            yield f"{prefix}/{role}", vector
        else:
            for name, tensor in layout.views(vector).items():
                yield f"{prefix}/{role}/{name}", tensor


def _gathered(prefix: str, tensors: Mapping[str, Tensor], roles: Roles, device: torch.device) -> dict[str, Tensor]:
    found: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        if key.startswith(f"{prefix}/"):
            role, _, name = key.removeprefix(f"{prefix}/").partition("/")
            found.setdefault(role, {})[name] = tensor
    return {role: named[""].to(device) if "" in named else roles[role].flatten(named) for role, named in found.items()}
