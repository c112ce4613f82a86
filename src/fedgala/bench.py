"""What a training step costs on this machine: its phases, and how near it comes to what the machine can do.

Two ceilings are measured in the same process: the rate of a large product or convolution in the precision that training
uses, and the bandwidth of a large copy. A step's operations and bytes are counted by watching one: operations of its
products and convolutions, and for every kernel the bytes of what goes in and comes out. Pictures are noise; the
arithmetic does not care.
"""

import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from fedgala import __version__, alignment, seeds
from fedgala.client import Trainer, batches
from fedgala.config import RunConfig
from fedgala.data.domain import DomainData
from fedgala.memory import peak_memory
from fedgala.messages import Broadcast
from fedgala.ssl import Batch

PHASES = ("augment", "forward + backward", "alignment", "optimizer", "after")
PIXELS = 128  # of a stored picture, as PACS is
WARM = 2  # steps that are not counted


@dataclass(frozen=True)
class Cost:
    """A step's cost."""

    seconds: dict[str, list[float]]  # of each phase, measured one by one in the same step
    whole: list[float]  # seconds of steps that nothing interrupts
    views: int
    operations: float
    bytes: float
    matrix: float  # operations per second of a large product or convolution
    bandwidth: float  # bytes per second of a large copy
    memory: dict[str, int]
    machine: dict[str, str]

    @property
    def step(self) -> float:
        """Seconds of a step, the median."""
        return statistics.median(self.whole)

    def to_json(self) -> dict[str, Any]:
        """All of it, and what follows."""
        return {**asdict(self), "step": self.step, "views_per_second": self.views / self.step}


class Bench:
    """A trainer with something to train on, and one step's phases as calls."""

    def __init__(self, config: RunConfig, device: torch.device):
        self.trainer = Trainer(config, device, 3, 7)
        size = config.federation.batch_size
        self.data = noise(4 * size, device)
        begun, layout = self.trainer.beginning(), self.trainer.layout
        chance = seeds.generator(0, "benchmark", device=device)
        reference = torch.randn(layout.length, device=device, generator=chance)
        self.sent = Broadcast(config.local.first_round, begun.weights, begun.statistics, reference)
        self.trainer._enter(self.sent, None, self.data)
        self.judged = self.trainer.reference(self.sent)
        self.conflicts = torch.zeros(0 if self.judged is None else len(self.judged.squared_norms), device=device)
        self.chance = chance

    def batch(self) -> Batch:
        """A batch of views."""
        size = self.trainer.config.federation.batch_size
        (index,) = batches(len(self.data), size, 1, self.chance)
        return self.trainer.make_batch(self.data, index, self.chance)

    def step(self) -> None:
        """One step, as training takes it."""
        self.trainer.step_(self.batch(), self.sent.weights, self.judged, self.conflicts, self.sent.round)

    def phases(self, lap: Callable[[str], None]) -> None:
        """The same step, with a lap after each phase."""
        trainer = self.trainer
        shown = self.batch()
        lap("augment")
        trainer.differentiate_(shown)
        trainer.regularize_(self.sent.weights)
        lap("forward + backward")
        keep = self._align(self.judged)
        lap("alignment")
        trainer.optimize_(keep, self.sent.round)
        lap("optimizer")
        trainer.method.after_step(trainer.model.module)
        lap("after")

    def _align(self, judged: alignment.Reference | None) -> Tensor:
        return self.trainer.everything if judged is None else self.trainer.align_(judged, self.conflicts)


def measure(config: RunConfig, device: torch.device, repeats: int, say: Callable[[str], None]) -> Cost:
    """The cost of a configuration's step on `device`; the medians are over `repeats` steps."""
    say("building the model")
    bench = Bench(config, device)
    clock, seconds = Clock(device), {phase: [0.0] * 0 for phase in PHASES}
    say(f"{WARM + repeats} steps in phases")
    for _ in range(WARM + repeats):
        clock.start()
        bench.phases(lambda phase: seconds[phase].append(clock.lap()))
    say(f"{repeats} whole steps")
    whole = []
    for _ in range(repeats):
        clock.start()
        bench.step()
        whole.append(clock.lap())
    say("counting operations and bytes")
    with FlopCounterMode(display=False) as flops, Traffic() as traffic:
        bench.step()
    say("the machine's ceilings")
    precision = torch.bfloat16 if bench.trainer.autocast else torch.float32
    return Cost(
        {phase: values[WARM:] for phase, values in seconds.items()},
        whole,
        2 * config.federation.batch_size,
        float(flops.get_total_flops()),
        float(traffic.bytes),
        matrix_rate(device, precision),
        copy_rate(device),
        peak_memory(),
        machine(device),
    )


def noise(count: int, device: torch.device) -> DomainData:
    """Pictures of noise, with labels that mean nothing."""
    images = torch.randint(0, 256, (count, 3, PIXELS, PIXELS), dtype=torch.uint8, device=device)
    sizes = torch.full((count, 2), PIXELS, dtype=torch.int32, device=device)
    order = torch.arange(count, device=device)
    return DomainData("noise", images, sizes, order % 7, parts=order % 3)


class Clock:
    """What passed since the last lap, the device's work included."""

    def __init__(self, device: torch.device):
        self.device = device
        self.start()

    def start(self) -> None:
        """Begin a lap."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.last = time.perf_counter()

    def lap(self) -> float:
        """Seconds of the lap that ends, and the next begins."""
        before = self.last
        self.start()
        return self.last - before


class Traffic(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes that kernels read and write; views read nothing."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run the kernel, and count."""
        found = func(*args, **(kwargs or {}))
        if not func.is_view:
            tensors = [it for it in tree_leaves((args, kwargs, found)) if isinstance(it, Tensor)]
            self.bytes += sum(it.numel() * it.element_size() for it in tensors)
        return found


def matrix_rate(device: torch.device, precision: torch.dtype) -> float:
    """Operations per second of a large matrix product, or of a large convolution where that is faster."""
    side, images = (8192, 1024) if device.type == "cuda" else (1024, 32)
    left, right = (torch.randn(side, side, device=device, dtype=precision) for _ in range(2))
    filters = torch.randn(128, 128, 3, 3, device=device, dtype=precision).contiguous(memory_format=torch.channels_last)
    maps = torch.randn(images, 128, 32, 32, device=device, dtype=precision)
    maps = maps.contiguous(memory_format=torch.channels_last)
    product = 2 * side**3 / _fastest(lambda: left @ right, device)
    convolution = 2 * maps.numel() * 128 * 9 / _fastest(lambda: F.conv2d(maps, filters, padding=1), device)
    return max(product, convolution)


def copy_rate(device: torch.device) -> float:
    """Bytes per second, read and written, of a large copy."""
    source = torch.ones(1 << (30 if device.type == "cuda" else 26), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * source.numel() / _fastest(lambda: target.copy_(source), device)


def _fastest(call: Callable[[], object], device: torch.device, repeats: int = 10) -> float:
    clock, found = Clock(device), []
    for _ in range(repeats):
        clock.start()
        call()
        found.append(clock.lap())
    return min(found)


def machine(device: torch.device) -> dict[str, str]:
    """Hardware and versions."""
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{torch.get_num_threads()} CPU threads"
    system = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    return {"device": where, "system": system, "torch": torch.__version__, "fedgala": __version__}
