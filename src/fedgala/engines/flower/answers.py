"""What a site answered, checked against the question before any mathematics; what is wrong is said in a line."""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch.linalg import vector_norm

from fedgala.engines.flower import wire
from fedgala.engines.flower.frames import Frame
from fedgala.messages import ClientUpdate
from fedgala.parameters import Layouts

MOST_SAMPLES = 10**9
SLACK = 1 + 1e-4  # by which the length of a clipped update may be off as it is computed again


@dataclass(frozen=True)
class Question:
    """What tells the answer to one question from the answer to any other."""

    site: str
    run: str
    round: int
    nonce: str  # drawn for this question: an answer that is replayed has another


def checked(answer: Frame, question: Question, layouts: Layouts, transport: str) -> ClientUpdate:
    """The update in an answer.

    Raises:
        WireError: the site says what went wrong, it answers another question, or it is no possible update.
    """
    words = answer.words
    if reason := words.get("error"):
        raise wire.WireError(str(reason)[:500])
    for key, expected in vars(question).items():
        if words.get(key) != expected:
            raise wire.WireError(f"answers another question: {key} {_short(words.get(key))} instead of {expected!r}")
    samples, metrics, conflicts = words.get("samples"), words.get("metrics"), words.get("conflicts", [])
    if not isinstance(samples, int) or isinstance(samples, bool) or not 0 < samples <= MOST_SAMPLES:
        raise wire.WireError(f"{_short(samples)} as its number of samples")
    if not isinstance(metrics, dict) or not all(map(_finite, metrics.values())):
        raise wire.WireError("metrics that are not all numbers")
    if not isinstance(conflicts, list) or not all(map(_finite, conflicts)):
        raise wire.WireError("shares of conflicts that are not all numbers")
    update, kept = wire.unpack(answer.arrays, layouts, transport)
    return ClientUpdate(question.site, update, kept, samples, dict(metrics), tuple(conflicts))


def too_long(updates: Mapping[str, ClientUpdate], bound: float, clip: float) -> dict[str, str]:
    """By site, why its update is refused: it is longer than `bound` times the median of three or more.

    A bound of 0 refuses none. Where sites clip, an update is refused that is longer than `clip`, and for nothing else:
    what is summed may not depend on how one site's pictures compare with those of the others.
    """
    norms = {name: float(vector_norm(it.update, dtype=torch.float64)) for name, it in updates.items()}
    if not clip and (not bound or len(norms) < 3):
        return {}
    most = clip * SLACK if clip else bound * statistics.median(norms.values())
    return {name: f"an update of length {n:.3g}, more than {most:.3g}" for name, n in norms.items() if n > most}


def _finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _short(value: object) -> str:
    return repr(value)[:40]
