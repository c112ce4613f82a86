"""Runs in TensorBoard, Weights & Biases and MLflow: each is sent what the records say, by an observer.

A service is an entry in `SERVICES`. The run's folder keeps how far each has got (``services.json``), so each record is
sent once: a resumed run goes on where it was, a round that is played again is not sent again, and a service that is
named late, even when the run has finished, is sent what it has missed. A service that fails while a run goes on costs
the run nothing; the same command sends the rest another time.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from statistics import fmean, pstdev
from typing import Any, Protocol

from fedgala.errors import ConfigError
from fedgala.observe import Observer, Several
from fedgala.records import Record
from fedgala.run import Run
from fedgala.storage import write_text
from fedgala.toml import to_toml

STATE = "services.json"


class Service(Protocol):
    """One run in a service; `identity` finds it again."""

    identity: str

    def send(self, values: Mapping[str, float], round: int, number: int) -> None:
        """Numbers by name, after a round; `number` counts what was sent before. They are safe when this returns."""

    def close(self, finished: bool) -> None:
        """No more will come from this process."""


class TensorBoard:
    """Event files in ``tensorboard/`` of the run's folder."""

    identity = "tensorboard"

    def __init__(self, run: Run, identity: str):
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(run.folder / self.identity))
        if not identity:
            self._writer.add_text("configuration", f"```toml\n{to_toml(run.config)}```")

    def send(self, values: Mapping[str, float], round: int, number: int) -> None:
        """A point in each curve."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, round)
        self._writer.flush()

    def close(self, finished: bool) -> None:
        """Close the file."""
        self._writer.close()


class WandB:
    """A run of W&B, in its project fedgala unless WANDB_PROJECT says otherwise; WANDB_MODE=offline needs no account."""

    def __init__(self, run: Run, identity: str):
        import wandb

        self._run: Any = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "fedgala"),
            name=run.folder.name,
            id=identity or None,
            config=run.config.to_dict(),
            dir=run.folder,
            resume="allow",
            reinit="create_new",  # several runs in one process are several runs
            settings=wandb.Settings(silent=True),
        )
        self._run.define_metric("*", step_metric="round")
        self.identity: str = self._run.id

    def send(self, values: Mapping[str, float], round: int, number: int) -> None:
        """One row of the history; W&B wants steps that never repeat, and a round may have two records."""
        self._run.log({**values, "round": round}, step=number, commit=True)

    def close(self, finished: bool) -> None:
        """Wait until all is written or sent."""
        self._run.finish(exit_code=0 if finished else 1)


class MLflow:
    """A run of MLflow's experiment fedgala, in the store that MLFLOW_TRACKING_URI names, or MLflow's own default."""

    def __init__(self, run: Run, identity: str):
        from mlflow import MlflowClient

        self._client: Any = MlflowClient()
        if identity:
            self._client.update_run(identity, status="RUNNING")
        else:
            found = self._client.get_experiment_by_name("fedgala")
            experiment = found.experiment_id if found else self._client.create_experiment("fedgala")
            identity = self._client.create_run(experiment, run_name=run.folder.name).info.run_id
            for section, values in run.config.to_dict().items():
                for name, value in values.items() if isinstance(values, dict) else [("", values)]:
                    self._client.log_param(identity, f"{section}.{name}".rstrip("."), value)
        self.identity: str = identity

    def send(self, values: Mapping[str, float], round: int, number: int) -> None:
        """A point in each curve, in one request; a name may not have all characters that a client's may."""
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        metrics = [Metric(_plain(name), value, now, round) for name, value in values.items()]
        self._client.log_batch(self.identity, metrics)

    def close(self, finished: bool) -> None:
        """Say how it ended."""
        self._client.set_terminated(self.identity, "FINISHED" if finished else "KILLED")


SERVICES: dict[str, tuple[str, Callable[[Run, str], Service]]] = {
    "tensorboard": ("tensorboard", TensorBoard),
    "wandb": ("wandb", WandB),
    "mlflow": ("mlflow", MLflow),
}
"""By the name that ``log`` knows: the module that must be there, and what starts or finds a run."""


def require(names: tuple[str, ...]) -> None:
    """Refuse to begin without the libraries of the services `names`.

    Raises:
        ConfigError: one is not installed.
    """
    for name in names:
        if find_spec(SERVICES[name][0]) is None:
            raise ConfigError(f"log = {name}: not installed here; pip install 'fedgala[{name}]'")


@contextmanager
def logged(run: Run, watcher: Observer) -> Iterator[Observer]:
    """The services that the run's configuration names, beside `watcher`; what they have missed is sent first.

    Raises:
        ConfigError: a service can't be used.
    """
    require(run.config.log)
    with ExitStack() as stack:
        followers = [Follower(name, run, watcher.note) for name in dict.fromkeys(run.config.log)]
        for follower in followers:
            stack.enter_context(follower)
        yield Several(watcher, *followers)


class Follower(Observer):
    """Sends each record to one service, and remembers that it has."""

    def __init__(self, name: str, run: Run, note: Callable[[str], None]):
        self.name, self.run, self.note_failure = name, run, note
        self._path = run.folder / STATE
        self._service: Service | None = None

    def __enter__(self) -> "Follower":
        try:
            self._service = SERVICES[self.name][1](self.run, self._state().get("identity", ""))
        except Exception as error:  # each library has its own
            raise ConfigError(f"log = {self.name}: {_first_line(error)}") from error
        for record in self.run.records.read():
            self.record(record)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._service is not None:
            self._service.close(finished=error is None)

    def record(self, record: Record) -> None:
        """Send a record, unless it has been sent before."""
        state = self._state()
        sent: dict[str, int] = state.get("sent", {})
        if self._service is None or record["round"] <= sent.get(record["kind"], -1):
            return
        try:
            self._service.send(numbers(record), record["round"], state.get("count", 0))
        except Exception as error:  # whatever a service's library raises must not cost a run
            self._service = None
            self.note_failure(f"{self.name}: {_first_line(error)}; the same command again sends what is missing")
            return
        self._remember(
            {
                "identity": self._service.identity,
                "sent": {**sent, record["kind"]: record["round"]},
                "count": state.get("count", 0) + 1,
            }
        )

    def _state(self) -> dict[str, Any]:
        found: dict[str, Any] = self._all().get(self.name, {})
        return found

    def _all(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._path.read_text(encoding="utf-8")) if self._path.exists() else {}
        return found

    def _remember(self, state: Mapping[str, Any]) -> None:
        write_text(self._path, json.dumps({**self._all(), self.name: state}, indent=1) + "\n")


def numbers(record: Record, path: str = "") -> dict[str, float]:
    """The numbers of a record by their path, ``client/photo/loss``; of several splits the mean and the spread.

    Lists of another kind (a share for each layer, cosines) are left out: they are for the report.
    """
    found: dict[str, float] = {}
    for name, value in record.items():
        place = f"{path}{name}"
        if isinstance(value, Mapping):
            found |= numbers(dict(value), f"{place}/")
        elif path.startswith(("probe/", "transfer/")) and isinstance(value, list):
            found |= {place: fmean(value), f"{place}/spread": pstdev(value)}
        elif isinstance(value, int | float) and place != "round":
            found[place] = float(value)
    return found


def _plain(name: str) -> str:
    return "".join(letter if (letter.isalnum() and letter.isascii()) or letter in "_-. /" else "_" for letter in name)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
