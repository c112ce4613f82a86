"""Self-supervised methods: each is an entry in `METHODS`, a record of how its module is built and what its loss is."""

from fedgala.ssl.adco import ADCO
from fedgala.ssl.base import Batch, Frozen, Outcome, Recipe, SSLMethod
from fedgala.ssl.byol import BYOL_METHOD
from fedgala.ssl.darling import DARLING
from fedgala.ssl.fedx import FEDX
from fedgala.ssl.moco import MOCO
from fedgala.ssl.simclr import SIMCLR
from fedgala.ssl.simsiam import SIMSIAM
from fedgala.ssl.supervised import SUPERVISED

METHODS: dict[str, SSLMethod] = {
    "simclr": SIMCLR,
    "moco": MOCO,
    "byol": BYOL_METHOD,
    "simsiam": SIMSIAM,
    "adco": ADCO,
    "darling": DARLING,
    "fedx": FEDX,
    "supervised": SUPERVISED,
}

__all__ = ["METHODS", "Batch", "Frozen", "Outcome", "Recipe", "SSLMethod"]
