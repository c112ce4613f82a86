"""Seeds are counters: every random decision has a generator of its own, named by what it is for.

Nothing is drawn from a stream that others draw from, so results do not depend on the order in which clients are run, on
the engine that runs them, or on where a run was interrupted.
"""

from hashlib import blake2b

import torch


def seed_for(seed: int, purpose: str, *counters: int | str) -> int:
    """A 63-bit seed for `purpose` (and round, client, ...), far from those of all other purposes and counters.

    A hash, for torch's CPU generator heeds the low 32 bits only: all of them depend on everything.
    """
    text = "\x1f".join([str(seed), purpose, *(f"{type(counter).__name__}={counter}" for counter in counters)])
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) >> 1


def generator(seed: int, purpose: str, *counters: int | str, device: torch.device | str = "cpu") -> torch.Generator:
    """A fresh generator on `device` for `purpose` and its counters."""
    return torch.Generator(device).manual_seed(seed_for(seed, purpose, *counters))
