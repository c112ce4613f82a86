"""Time of a training step of every self-supervised method, beside what its extra forward passes explain.

    python benchmarks/methods.py                              ResNet-18, batch 128
    python benchmarks/methods.py --preset cpu --threads 1     the small encoder of the demonstration
    python benchmarks/methods.py --json methods.json

Explained is SimCLR's step plus the parts that a method adds, each measured by itself in the same process: a target or
frozen network's forward pass, a predictor forward and backward, more views forward and backward. A method that encodes
one view of each image instead of two saves half of SimCLR's passes. Queues, averages and the loss itself are not
explained: they are what the ratio shows.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from fedgala.api import choose_device
from fedgala.bench import Bench, machine
from fedgala.client import Trainer
from fedgala.config import RunConfig, merge
from fedgala.presets import PRESETS
from fedgala.ssl import METHODS


@dataclass(frozen=True)
class Extra:
    """What a method does beside or instead of encoding both views with a gradient, in units of B images."""

    trained: float = 2.0  # images through encoder and projector, forward and backward
    looked: float = 0.0  # images through a network without gradient
    predicted: float = 0.0  # projections through a predictor, forward and backward


EXTRAS = {
    "simclr": Extra(),
    "moco": Extra(trained=1, looked=1),
    "byol": Extra(looked=2, predicted=2),
    "simsiam": Extra(predicted=2),
    "adco": Extra(trained=1, looked=1),
    "darling": Extra(trained=1, looked=1),
    "fedx": Extra(trained=2.5, looked=2.5, predicted=2),
    "supervised": Extra(),
}


def median(call: Callable[[], object], repeats: int, device: torch.device) -> float:
    """Seconds that a call takes, the device's work included, after two to warm up."""
    seconds = []
    for number in range(repeats + 2):
        began = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize()
        if number >= 2:
            seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def step_seconds(config: RunConfig, repeats: int, device: torch.device) -> float:
    """One whole step, local alignment included."""
    return median(Bench(config, device).step, repeats, device)


def parts(trainer: Trainer, repeats: int) -> dict[str, float]:
    """Seconds for B images through the network with a gradient, without one, and through a predictor."""
    size, crop, device = trainer.config.federation.batch_size, trainer.config.views.crop, trainer.device
    model = trainer.config.model
    images = torch.rand(size, 3, crop, crop, device=device).contiguous(memory_format=torch.channels_last)
    hidden = torch.rand(size, model.projector_output, device=device)
    module = trainer.model.module

    def through(network: nn.Module, inputs: Tensor, gradient: bool) -> None:
        with torch.set_grad_enabled(gradient), torch.autocast(device.type, torch.bfloat16, enabled=trainer.autocast):
            found = network(inputs).float().sum()
        if gradient:
            torch.autograd.backward(found)

    predictor = module.get_submodule("predictor")
    return {
        "trained": median(lambda: through(module, images, True), repeats, device),
        "looked": median(lambda: through(module, images, False), repeats, device),
        "predicted": median(lambda: through(predictor, hidden, True), repeats, device),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="paper", choices=PRESETS)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    device = choose_device(options.device)

    def config(method: str) -> RunConfig:
        over = merge(PRESETS[options.preset], {"local": {"rule": "discard"}, "ssl": {"method": method}})
        return RunConfig.from_dict(over)

    piece = parts(Trainer(config("byol"), device), options.repeats)
    seconds = {method: step_seconds(config(method), options.repeats, device) for method in METHODS}
    print(f"{'method':<12}{'ms':>9}{'explained':>11}{'ratio':>8}")
    rows = {}
    for method, taken in seconds.items():
        extra, plain = EXTRAS[method], EXTRAS["simclr"]
        explained = seconds["simclr"] + sum(
            (getattr(extra, name) - getattr(plain, name)) * value for name, value in piece.items()
        )
        rows[method] = {"seconds": taken, "explained": explained, "ratio": taken / explained}
        print(f"{method:<12}{1e3 * taken:>9.2f}{1e3 * explained:>11.2f}{taken / explained:>8.2f}")
    if options.json:
        found = {"machine": machine(device), "parts": piece, "methods": rows}
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
