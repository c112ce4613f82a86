"""The learning rate over the rounds."""

import math
from collections.abc import Callable

SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda progress: 1.0,
    "cosine": lambda progress: (1 + math.cos(math.pi * progress)) / 2,
}


def learning_rate(schedule: str, peak: float, round: int, rounds: int) -> float:
    """The learning rate of `round` (the first is 1): the cosine starts at `peak` and would reach 0 after the last."""
    return peak * SCHEDULES[schedule]((round - 1) / rounds)
