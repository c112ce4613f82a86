"""How much memory a process has taken at most, for the records."""

import sys

import torch

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]


def peak_memory() -> dict[str, int]:
    """Bytes at most so far: of this process, and of the GPU where there is one in use.

    The process's share counts mapped pictures as long as the system has room for them; it takes them back where it
    has not, so a data set may be larger than the memory although the number is not.
    """
    found = {}
    if resource is not None:
        unit = 1 if sys.platform == "darwin" else 1024
        found["process"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    if torch.cuda.is_available() and (used := torch.cuda.max_memory_allocated()):
        found["cuda"] = used
    return found
