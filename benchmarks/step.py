"""Time of one training step and its split: augmentation, forward and backward, local alignment, optimizer.

    python benchmarks/step.py                        ResNet-18, batch 128, as the paper trains
    python benchmarks/step.py --preset cpu           the small encoder of the demonstration
    python benchmarks/step.py --repeats 20 --json step.json

Pictures are noise: the arithmetic does not care. Medians over the repeats, phases measured one by one in the same step.
"""

import argparse
import json
import platform
import statistics
import time
from pathlib import Path

import torch

from fedgala import seeds
from fedgala.api import choose_device
from fedgala.client import Trainer, batches
from fedgala.config import RunConfig, merge
from fedgala.data.domain import DomainData
from fedgala.messages import Broadcast
from fedgala.presets import PRESETS

PHASES = ("augment", "forward + backward", "alignment", "optimizer")
PIXELS = 128  # of a stored picture, as PACS is


def noise(count: int, device: torch.device) -> DomainData:
    """Pictures of noise."""
    images = torch.randint(0, 256, (count, 3, PIXELS, PIXELS), dtype=torch.uint8, device=device)
    return DomainData("noise", images, torch.full((count, 2), PIXELS, dtype=torch.int32, device=device))


class Clock:
    """Adds up what passed since the last lap, the device's work included."""

    def __init__(self, device: torch.device, seconds: dict[str, list[float]]):
        self.device, self.seconds, self.last = device, seconds, time.perf_counter()

    def lap(self, phase: str) -> None:
        """The time since the last lap was spent on `phase`."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        now = time.perf_counter()
        self.seconds[phase].append(now - self.last)
        self.last = now


def measure(trainer: Trainer, repeats: int) -> dict[str, list[float]]:
    """Seconds of each phase in each of `repeats` steps, after two steps to warm up."""
    device, batch_size = trainer.device, trainer.config.federation.batch_size
    data = noise(4 * batch_size, device)
    reference = torch.randn(trainer.layout.length, device=device)
    sent = Broadcast(2, trainer.model.weights.clone(), trainer.model.statistics.clone(), reference)
    judged = trainer.reference(sent)
    assert judged is not None, "the configuration has no local alignment"
    conflicts = torch.zeros(len(judged.squared_norms), device=device)
    chance = seeds.generator(0, "benchmark", device=device)
    seconds: dict[str, list[float]] = {phase: [] for phase in PHASES}

    for batch in batches(len(data), batch_size, repeats + 2, chance):
        clock = Clock(device, seconds)
        shown = trainer.make_batch(data, batch, chance)
        clock.lap("augment")
        trainer.differentiate_(shown)
        clock.lap("forward + backward")
        keep = trainer.align_(judged, conflicts)
        clock.lap("alignment")
        trainer.optimize_(keep, 2)
        clock.lap("optimizer")
    return {phase: values[2:] for phase, values in seconds.items()}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="paper", choices=PRESETS)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    device = choose_device(options.device)
    config = RunConfig.from_dict(merge(PRESETS[options.preset], {"local": {"rule": "discard"}}))
    seconds = measure(Trainer(config, device), options.repeats)
    medians = {phase: statistics.median(values) for phase, values in seconds.items()}
    total = sum(medians.values())
    where = torch.cuda.get_device_name() if device.type == "cuda" else f"{torch.get_num_threads()} CPU threads"
    print(f"{config.model.encoder}, batch {config.federation.batch_size}, {where}, torch {torch.__version__}")
    for phase, median in medians.items():
        spread = f"{1e3 * min(seconds[phase]):.1f} to {1e3 * max(seconds[phase]):.1f}"
        print(f"{phase:<20}{1e3 * median:>9.1f} ms  {median / total:>6.1%}   ({spread})")
    rest = 1 - medians["forward + backward"] / total
    print(f"{'step':<20}{1e3 * total:>9.1f} ms           all but forward + backward: {rest:.1%}")
    if options.json:
        facts = {"machine": platform.processor() or platform.machine(), "where": where, "torch": torch.__version__}
        options.json.write_text(json.dumps({**facts, "seconds": seconds}, indent=1) + "\n")


if __name__ == "__main__":
    main()
