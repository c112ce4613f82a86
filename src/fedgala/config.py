"""A run is a value: one frozen, typed and complete configuration, from which everything else follows.

Defaults are the paper's (its appendix), but for two choices about local alignment that were measured, see
``docs/method.md``:
the sign is the prose's meaning and not Algorithm 1's letter, and a conflicting gradient is projected, not discarded.
The preset `paper` takes the paper at its word. Presets live in `presets`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from fedgala.errors import ConfigError
from fedgala.settings import Section, setting

NATIVE = 4096  # longest side that any stored picture may have
UNIT_CHOICES = ("tensor", "layer", "model")
SSL_CHOICES = ["simclr", "moco", "byol", "simsiam", "adco", "darling", "fedx", "supervised"]  # see methods.add_loss
BOUNDED = ("fedavg", "agreement")  # rules under which privacy knows how far one client moves the global model
PREDICTING = ("byol", "simsiam", "fedx")


@dataclass(frozen=True)
class DataConfig(Section):
    """Which images, and which domain nobody trains on."""

    path: str = setting(
        "shapes",
        "folder or archive of DOMAIN/CLASS/picture.jpg (labels) or DOMAIN/picture.jpg (none), hf:OWNER/NAME, or shapes",
        flag="--data",
    )
    target: str | None = setting(None, "the unseen domain, held out of training for the probe", flag="--target")
    sources: tuple[str, ...] | None = setting(
        None, "the domains to train on; all but the unseen one if not said", flag="--sources"
    )
    size: int = setting(
        128,
        f"longest side of a stored picture, pixels; 0 keeps pictures as they are, up to {NATIVE}",
        low=0,
        high=NATIVE,
    )
    limit: int | None = setting(None, "at most this many images per domain", low=1, flag="--limit")
    strict: bool = setting(False, "refuse the data set when a file can't be read, instead of skipping the file")

    def check(self) -> None:
        """One spelling for one folder: the path is part of what a run is."""
        if not self.path:
            raise ConfigError("data.path is empty: name a folder, an archive, hf:OWNER/NAME, or shapes")
        if 0 < self.size < 8:
            raise ConfigError(f"data.size = {self.size}: must be at least 8, or 0 for pictures as they are")
        object.__setattr__(self, "path", str(Path(self.path)))


@dataclass(frozen=True)
class ViewsConfig(Section):
    """How a random view of an image is made (SimCLR's augmentation)."""

    crop: int = setting(32, "side of a view, pixels", low=8, high=512)
    scale: tuple[float, float] = setting(
        (0.08, 1.0), "share of the picture's area in a crop, from and to", above=0, high=1
    )
    ratio: tuple[float, float] = setting((3 / 4, 4 / 3), "width over height of a crop, from and to", above=0)
    flip: float = setting(0.5, "probability of a horizontal flip", low=0, high=1)
    jitter: float = setting(0.8, "probability of the colour jitter", low=0, high=1)
    brightness: float = setting(0.8, "strength of the brightness jitter", low=0, high=1)
    contrast: float = setting(0.8, "strength of the contrast jitter", low=0, high=1)
    saturation: float = setting(0.8, "strength of the saturation jitter", low=0, high=1)
    hue: float = setting(0.2, "strength of the hue jitter, in turns of the colour wheel", low=0, high=0.5)
    grayscale: float = setting(0.2, "probability of a gray view", low=0, high=1)

    def check(self) -> None:
        """Ranges must go upwards."""
        for name in ("scale", "ratio"):
            low, high = getattr(self, name)
            if low > high:
                raise ConfigError(f"views.{name} = {[low, high]}: the first value must not exceed the second")


@dataclass(frozen=True)
class ModelConfig(Section):
    """The encoder, and the projector between it and the loss."""

    encoder: str = setting(
        "resnet18", "resnet18 (the paper) or small (for CPUs)", choices=("resnet18", "small"), flag="--encoder"
    )
    projector_hidden: int = setting(4096, "width of the projector's hidden layer", low=1, high=65536)
    projector_output: int = setting(2048, "length of a projection", low=1, high=65536)
    predictor_hidden: int = setting(4096, "width of a predictor's hidden layer", low=1, high=65536)


@dataclass(frozen=True)
class SslConfig(Section):
    """The self-supervised loss, or the supervised one."""

    method: str = setting("simclr", "what is learnt from; `fedgala methods` explains them", choices=SSL_CHOICES)
    temperature: float = setting(0.07, "temperature of NT-Xent and InfoNCE", above=0)
    momentum: float = setting(0.99, "momentum of a target network (moco, byol, adco, darling)", low=0, high=0.999999)
    queue: int = setting(1024, "negatives that are kept (moco, adco; darling: for each domain)", low=1, high=1 << 20)
    head: str = setting("mlp", "projector: two layers, or one (MoCo v1)", choices=("mlp", "linear"))
    predictor: str = setting(
        "home", "predictors (byol, simsiam, fedx) stay at home, or travel as the rest does", choices=("home", "travel")
    )
    adversary: float = setting(3.0, "learning rate of adco's negatives", above=0)
    adversary_temperature: float = setting(0.02, "temperature by which adco's negatives move", above=0)
    relation: float = setting(0.1, "temperature of the relations that fedx distils", above=0)


@dataclass(frozen=True)
class OptimizerConfig(Section):
    """How a client turns gradients into steps."""

    name: str = setting("adam", "optimizer", choices=("adam", "sgd"))
    learning_rate: float = setting(3e-3, "learning rate, eta", above=0, flag="--learning-rate")
    momentum: float = setting(0.9, "momentum of sgd", low=0, high=0.9999)
    weight_decay: float = setting(0.0, "weight decay, as torch.optim's", low=0)
    schedule: str = setting("constant", "learning rate over the rounds", choices=("constant", "cosine"))
    state: str = setting("keep", "a client's optimizer state between its rounds", choices=("keep", "reset"))


@dataclass(frozen=True)
class LocalConfig(Section):
    """Local alignment: which gradients a client lets through."""

    rule: str = setting(
        "project", "what happens to a gradient that does not agree with the reference",
        choices=("none", "discard", "reweight", "project"),
    )  # fmt: skip
    threshold: float = setting(0.0, "a cosine above this agrees, tau", low=-1, high=1)
    unit: str = setting("layer", "what is judged as a whole", choices=UNIT_CHOICES)
    sign: str = setting(
        "descent", "compare the gradient as printed in Algorithm 1, or the descent step", choices=("printed", "descent")
    )
    factor: float = setting(0.5, "what rule reweight multiplies by, RF", low=0, high=1)
    first_round: int = setting(2, "first round with local alignment; the second is the first with a reference", low=2)

    def check(self) -> None:
        """Projection removes what conflicts, and a positive cosine does not."""
        if self.rule == "project" and self.threshold > 0:
            raise ConfigError(
                f"local.threshold = {self.threshold:g}: rule project needs at most 0, rules discard and reweight don't"
            )


@dataclass(frozen=True)
class EntryConfig(Section):
    """With which weights a client begins a round."""

    rule: str = setting(
        "global",
        "the global model's; mixed with its own (ema: FedEMA); its own predictor if it diverged (dapu: FedU)",
        choices=("global", "ema", "dapu"),
    )
    share: float = setting(0.7, "share of its own model in a client's first mixture, FedEMA's tau", low=0, high=1)
    threshold: float = setting(0.4, "divergence from which a client keeps its predictor, FedU's mu", low=0)


@dataclass(frozen=True)
class ServerConfig(Section):
    """Global alignment: how much each client counts."""

    rule: str = setting(
        "agreement",
        "by agreement (FedGaLA), by samples, by layers' angles (L-DAWA), by losses (FedDG-GA)",
        choices=("agreement", "fedavg", "ldawa", "feddgga"),
    )
    iterations: int = setting(3, "iterations of global alignment", low=0, high=1000)
    gamma: float = setting(1.0, "share of the agreement weights in the mixture with FedAvg's", low=0, high=1)
    unit: str = setting("model", "what has a weight of its own", choices=UNIT_CHOICES)
    pace: float = setting(0.2, "how far feddgga moves a weight in the first round; less with each", low=0, high=1)


@dataclass(frozen=True)
class FederationConfig(Section):
    """Rounds, clients and local training."""

    rounds: int = setting(100, "communication rounds, T", low=1, flag="--rounds")
    epochs: float = setting(7.0, "local epochs per round, E; fractions are allowed", above=0, high=1e6, flag="--epochs")
    batch_size: int = setting(128, "images per step, each seen in two views, B", low=2, flag="--batch-size")
    participation: float = setting(1.0, "share of the clients that take part in a round", above=0, high=1)
    norm_statistics: str = setting(
        "average", "BatchNorm statistics: averaged, or each client's own", choices=("average", "local")
    )
    l2: float = setting(0.0, "weight of the squared L2 norm of the parameters, lambda", low=0)
    proximal: float = setting(0.0, "weight of the squared distance to the global model (FedProx), mu", low=0)
    moon: float = setting(0.0, "weight of MOON's term: be nearer to the global model than to the own last one", low=0)
    moon_temperature: float = setting(0.5, "temperature of MOON's term", above=0)


@dataclass(frozen=True)
class PartitionConfig(Section):
    """Who holds what."""

    clients: int | None = setting(
        None, "number of clients, K; one for each domain if not said", low=1, flag="--clients"
    )
    rule: str = setting(
        "iid", "how clients share a domain: evenly, or with skewed classes", choices=("iid", "dirichlet")
    )
    alpha: float = setting(0.5, "evenness of rule dirichlet; small is skewed", above=0)


@dataclass(frozen=True)
class PrivacyConfig(Section):
    """Differential privacy of whole clients: what each may contribute to a round, and the noise that hides it."""

    clip: float = setting(0.0, "longest update that a client sends, L2 norm; 0: as it is, and no privacy", low=0)
    statistics_clip: float = setting(1.0, "furthest that a client moves the norms' statistics, L2 norm", above=0)
    noise: float = setting(0.0, "standard deviation of the noise, in units of what one client can move", low=0)
    delta: float = setting(1e-5, "probability with which the guarantee may fail, delta", above=0, high=0.1)

    def check(self) -> None:
        """Noise hides nothing that has no bound."""
        if self.noise and not self.clip:
            raise ConfigError(f"privacy.noise = {self.noise:g}: needs privacy.clip, a bound on what it has to hide")


@dataclass(frozen=True)
class ProbeConfig(Section):
    """What is measured on the unseen domain, where there are labels; a monitor without labels always runs."""

    every: int = setting(
        0, "rounds between evaluations; 0: before the first and after the last", low=0, flag="--probe-every"
    )
    ratios: tuple[float, ...] = setting(
        (0.1, 0.3), "shares of the target's labels for the linear probe", above=0, high=0.95
    )
    splits: int = setting(10, "random splits per ratio", low=1, high=1000)
    stratified: bool = setting(True, "splits keep the classes' shares")
    epochs: int = setting(100, "epochs of the linear probe", low=1)
    learning_rate: float = setting(3e-3, "Adam's learning rate for the linear probe", above=0)
    neighbours: int = setting(20, "neighbours of the kNN monitor", low=1)

    def check(self) -> None:
        """A probe needs something to be trained on."""
        if not self.ratios:
            raise ConfigError("probe.ratios = []: name at least one share of the labels")


@dataclass(frozen=True)
class EngineConfig(Section):
    """Where and how the arithmetic runs."""

    device: str = setting("auto", "auto, cpu, cuda or cuda:N", identity=False, flag="--device")
    precision: str = setting(
        "auto", "auto: bfloat16 on CUDA, float32 elsewhere", choices=("auto", "float32", "bfloat16")
    )
    threads: int | None = setting(
        None, "CPU threads; all cores if not said", low=1, high=1024, identity=False, flag="--threads"
    )


@dataclass(frozen=True)
class RunConfig(Section):
    """Everything that makes a run."""

    name: str = setting(
        "", "name of the run's folder; made from data and target if empty", identity=False, flag="--name"
    )
    out: str = setting("runs", "where runs are kept", identity=False, flag="--out")
    log: tuple[str, ...] = setting(
        (), "where else records go", choices=("tensorboard", "wandb", "mlflow"), identity=False, flag="--log"
    )
    seed: int = setting(0, "seed of all random decisions", low=0, flag="--seed")
    data: DataConfig = DataConfig()
    views: ViewsConfig = ViewsConfig()
    model: ModelConfig = ModelConfig()
    ssl: SslConfig = SslConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    local: LocalConfig = LocalConfig()
    entry: EntryConfig = EntryConfig()
    server: ServerConfig = ServerConfig()
    federation: FederationConfig = FederationConfig()
    partition: PartitionConfig = PartitionConfig()
    privacy: PrivacyConfig = PrivacyConfig()
    probe: ProbeConfig = ProbeConfig()
    engine: EngineConfig = EngineConfig()

    def check(self) -> None:
        """The name is that of a folder inside `out`; methods and rules must go together."""
        if self.name != Path(self.name).name and self.name:
            raise ConfigError(f"name = {self.name!r}: a name, not a path; --out says where runs are kept")
        method, travels = self.ssl.method, self.ssl.predictor == "travel"
        if self.entry.rule == "dapu" and not (method in PREDICTING and travels):
            raise ConfigError(
                f"entry.rule = 'dapu' chooses between two predictors, but {method}'s "
                f"{'stays at home' if method in PREDICTING else 'does not exist'}: use --ssl.method byol or simsiam "
                "with --ssl.predictor travel"
            )
        if travels and method not in PREDICTING:
            raise ConfigError(f"ssl.predictor = 'travel': {method} has none; those that do: {', '.join(PREDICTING)}")
        if method == "supervised" and self.federation.moon:
            raise ConfigError("federation.moon contrasts projections; ssl.method = 'supervised' has none, but classes")
        bounded = self.server.rule in BOUNDED and (self.server.unit == "model" or not self.agreement_share)
        if self.privacy.clip and not bounded:
            raise ConfigError(
                f"server.rule = {self.server.rule!r}, server.unit = {self.server.unit!r} with privacy.clip: how far "
                "one client moves the model has no known bound; allowed: fedavg, and agreement with unit = model"
            )

    @property
    def agreement_share(self) -> float:
        """The share of the clients' weights that depends on their pictures."""
        return self.server.gamma if self.server.rule == "agreement" and self.server.iterations else 0.0

    @property
    def hash(self) -> str:
        """Eight hex digits of everything that makes results what they are."""
        text = json.dumps(self.to_dict(identity_only=True), sort_keys=True)
        return blake2b(text.encode(), digest_size=4).hexdigest()

    @property
    def folder(self) -> Path:
        """Where the run lives."""
        data = Path(self.data.path.rpartition("hf:")[2]).absolute().name.split(".")[0]
        name = self.name or "-".join(filter(None, (data, self.data.target)))
        return Path(self.out) / f"{name}-{self.hash}"


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Nested plain data `base` with the values of `over` on top.

    Raises:
        ConfigError: a name is a section in one and a value in the other.
    """
    merged = dict(base)
    for name, value in over.items():
        below = merged.get(name, value)
        if isinstance(below, Mapping) != isinstance(value, Mapping):  # one of the two would be lost unseen
            raise ConfigError(f"{name} is given as {below!r} and as {value!r}: write it as --dry-run prints it")
        merged[name] = merge(below, value) if isinstance(value, Mapping) else value
    return merged
