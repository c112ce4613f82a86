"""How a deployment behaves: who must be there, how long is waited, what is accepted. Not part of what a run is."""

from dataclasses import dataclass

from fedgala.config import RunConfig
from fedgala.errors import ConfigError
from fedgala.settings import Section, setting


@dataclass(frozen=True)
class DeployConfig(Section):
    """Settings of the server of a deployment."""

    min_sites: int = setting(2, "sites without whose updates a round does not count", low=1, flag="--min-sites")
    sites: int = setting(
        0,
        "sites that the first round waits for, while patience lasts; 0: all that the deployment has",
        low=0,
        flag="--sites",
    )
    deadline: float = setting(1800.0, "seconds that a site has for a round", above=0, high=86400, flag="--deadline")
    patience: float = setting(
        600.0, "seconds without enough sites after which the run stops", above=0, high=604800, flag="--patience"
    )
    transport: str = setting(
        "float32", "type of parameters on the wire", choices=("float32", "float16", "bfloat16"), flag="--transport"
    )
    norm_bound: float = setting(
        10.0, "an update longer than this many times the round's median is refused; 0: none", low=0, flag="--norm-bound"
    )


def check_together(config: RunConfig, settings: DeployConfig) -> None:
    """Refuse what a run and a deployment can't have at once.

    Raises:
        ConfigError: with the reason.
    """
    if config.privacy.clip and settings.transport != "float32":
        raise ConfigError(
            f"deploy.transport = {settings.transport!r} with privacy.clip: rounding would lengthen updates that were "
            "clipped; use float32"
        )
