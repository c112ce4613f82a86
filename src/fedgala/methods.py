"""Every method the paper compares with, and its relatives: names for sets of settings, as `--method` takes them.

A method says what is learnt and how clients are combined; a preset (`presets`) says how large and how long. Where both
speak, the method is heard. Hyper-parameters are the appendix's: Adam, 3e-3, with SimCLR, SGD with all others. All of
it is configuration: any loss goes with any rule, unless `config` refuses it with the reason.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedgala.config import SSL_CHOICES
from fedgala.errors import ConfigError
from fedgala.settings import near

if TYPE_CHECKING:  # who only lists methods need not wait for torch
    from fedgala.ssl import SSLMethod


@dataclass(frozen=True)
class Method:
    """A named set of settings, and what one wants to know before choosing it."""

    settings: Mapping[str, Any]  # nested, on top of the defaults and a preset
    line: str
    paper: str
    stays: str = ""  # with a client beyond its pictures and optimizer state; all else travels
    labels: bool = False  # whether training needs them

    @property
    def travels(self) -> str:
        """The parts whose update leaves a client."""
        settings = self.settings
        if settings.get("partition", {}).get("clients") == 1:
            return "nothing: pictures are pooled"
        if self.labels:
            return "encoder, classifier"
        predictor = settings.get("ssl", {}).get("predictor") == "travel"
        return "encoder, projector" + (", predictor" if predictor else "")


AVERAGED: dict[str, Any] = {"local": {"rule": "none"}, "server": {"rule": "fedavg"}}
ALIGNED: dict[str, Any] = {"server": {"rule": "agreement"}}
POOLED: dict[str, Any] = {**AVERAGED, "partition": {"clients": 1}}


def sgd(rate: float) -> dict[str, Any]:
    """The appendix's optimizer of all methods but SimCLR's."""
    return {"optimizer": {"name": "sgd", "learning_rate": rate, "momentum": 0.9, "weight_decay": 3e-4}}


SIMCLR: dict[str, Any] = {"ssl": {"method": "simclr"}}
MOCO: dict[str, Any] = {"ssl": {"method": "moco"}, **sgd(0.025)}
BYOL: dict[str, Any] = {"ssl": {"method": "byol"}, **sgd(0.03)}
SIMSIAM: dict[str, Any] = {"ssl": {"method": "simsiam"}, **sgd(0.03)}
EMA: dict[str, Any] = {"ssl": {"method": "byol", "predictor": "travel"}, **sgd(0.03), "entry": {"rule": "ema"}}
DAPU: dict[str, Any] = {**EMA, "entry": {"rule": "dapu"}}
_TARGET, _QUEUE = "target network", "key encoder, queue"

METHODS: dict[str, Method] = {
    "fedgala": Method({**SIMCLR, **ALIGNED}, "SimCLR with local and global alignment", "FedGaLA, AAAI 2025"),
    "fedgala-moco": Method({**MOCO, **ALIGNED}, "MoCo with local and global alignment", "FedGaLA, AAAI 2025", _QUEUE),
    "fedgala-byol": Method(
        {**BYOL, **ALIGNED}, "BYOL with local and global alignment", "FedGaLA, AAAI 2025", f"{_TARGET}, predictor"
    ),
    "fedgala-simsiam": Method(
        {**SIMSIAM, **ALIGNED}, "SimSiam with local and global alignment", "FedGaLA, AAAI 2025", "predictor"
    ),
    "fedgala-ema": Method(
        {**EMA, **ALIGNED}, "FedEMA with local and global alignment", "FedGaLA, AAAI 2025", f"{_TARGET}, own model"
    ),
    "fedsimclr": Method({**SIMCLR, **AVERAGED}, "SimCLR, averaged by samples", "SimCLR, ICML 2020"),
    "fedmoco": Method({**MOCO, **AVERAGED}, "MoCo, averaged by samples", "MoCo, CVPR 2020", _QUEUE),
    "fedbyol": Method({**BYOL, **AVERAGED}, "BYOL, averaged by samples", "BYOL, NeurIPS 2020", f"{_TARGET}, predictor"),
    "fedsimsiam": Method({**SIMSIAM, **AVERAGED}, "SimSiam, averaged by samples", "SimSiam, CVPR 2021", "predictor"),
    "fedema": Method(
        {**EMA, **AVERAGED}, "BYOL; clients mix the global model with their own", "FedEMA, ICLR 2022",
        f"{_TARGET}, own model",
    ),
    "fedu": Method(
        {**DAPU, **AVERAGED}, "BYOL; clients that diverge keep their predictor", "FedU, ICCV 2021",
        f"{_TARGET}, own predictor",
    ),
    "fedx": Method(
        {"ssl": {"method": "fedx", "predictor": "travel"}, **AVERAGED},
        "SimCLR with distillation between views and from the global model", "FedX, ECCV 2022",
    ),
    "moon": Method(
        {**SIMCLR, **AVERAGED, "federation": {"moon": 1.0}},
        "SimCLR that prefers the global model to a client's last one", "MOON, CVPR 2021", "last model",
    ),
    "fedprox": Method(
        {**SIMCLR, **AVERAGED, "federation": {"proximal": 0.01}}, "SimCLR that stays near the global model",
        "FedProx, MLSys 2020",
    ),
    "fedl2": Method(
        {**SIMCLR, **AVERAGED, "federation": {"l2": 0.001}}, "SimCLR with small weights", "FedGaLA's appendix",
    ),
    "ldawa": Method(
        {**SIMCLR, "local": {"rule": "none"}, "server": {"rule": "ldawa"}},
        "SimCLR, layers averaged by their angle to the global ones", "L-DAWA, ICCV 2023",
    ),
    "feddgga": Method(
        {**SIMCLR, "local": {"rule": "none"}, "server": {"rule": "feddgga"}},
        "SimCLR, more weight to whom the global model serves worst", "FedDG-GA, CVPR 2023", "a loss to compare with",
    ),
    "supervised": Method(
        {"ssl": {"method": "supervised"}, **ALIGNED}, "cross-entropy with local and global alignment",
        "FedGaLA, Remark A1", labels=True,
    ),
    "simclr": Method({**SIMCLR, **POOLED}, "centralised SimCLR", "SimCLR, ICML 2020"),
    "moco": Method({**MOCO, **POOLED}, "centralised MoCo", "MoCo, CVPR 2020"),
    "byol": Method({**BYOL, **POOLED}, "centralised BYOL", "BYOL, NeurIPS 2020"),
    "simsiam": Method({**SIMSIAM, **POOLED}, "centralised SimSiam", "SimSiam, CVPR 2021"),
    "adco": Method({"ssl": {"method": "adco"}, **sgd(0.03), **POOLED}, "centralised, with adversarial negatives",
                   "AdCo, CVPR 2021"),
    "darling": Method({"ssl": {"method": "darling"}, **sgd(0.03), **POOLED},
                      "centralised, with negatives from like domains", "DARLING, CVPR 2022"),
}  # fmt: skip


def method_settings(name: str | None, what: str = "--method") -> dict[str, Any]:
    """The settings of a method by its name; none without one.

    Raises:
        ConfigError: there is no such method.
    """
    if name is None:
        return {}
    if name not in METHODS:
        raise ConfigError(f"{what} {name}: {near(name, METHODS)}; `fedgala methods` explains them")
    return dict(METHODS[name].settings)


def add_loss(name: str, method: "SSLMethod") -> None:
    """Make a loss of your own known to this process: ``ssl.method = name``, with every rule there is."""
    from fedgala.ssl import METHODS as LOSSES

    LOSSES[name] = method
    if name not in SSL_CHOICES:
        SSL_CHOICES.append(name)
