"""The command that says what a training step costs on this machine."""

import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedgala.cli.flags import configuration
from fedgala.cli.progress import say
from fedgala.config import RunConfig
from fedgala.presets import PRESETS

if TYPE_CHECKING:
    from fedgala.bench import Cost


def bench(
    settings: dict[str, str],
    preset: Annotated[str | None, typer.Option(help=f"how large: {', '.join(PRESETS)}")] = None,
    method: Annotated[str | None, typer.Option(help="what is learnt: `fedgala methods` lists them")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="steps that are measured")] = 5,
    save: Annotated[Path | None, typer.Option("--json", help="also write all figures, with hardware, here")] = None,
) -> None:
    """Measure a training step here: its phases, views per second, and the share of what the machine can do.

    **fedgala bench**  the paper's: ResNet-18, 256 views

    **fedgala bench --preset cpu --method fedbyol --threads 1**
    """
    import torch

    from fedgala.api import choose_device
    from fedgala.bench import measure
    from fedgala.storage import write_text

    config = configuration(preset, method, None, settings)
    device = choose_device(config.engine.device)
    if config.engine.threads:
        torch.set_num_threads(config.engine.threads)
    cost = measure(config, device, repeats, say)
    print("\n".join(report(config, cost)))
    if save:
        found = {"configuration": config.to_dict(identity_only=True), **cost.to_json()}
        write_text(save, json.dumps(found, indent=1) + "\n")
        print(save)


def report(config: RunConfig, cost: "Cost") -> Iterator[str]:
    """The figures as lines."""
    where = ", ".join((cost.machine["device"], cost.machine["system"], f"torch {cost.machine['torch']}"))
    yield f"{config.ssl.method}, {config.model.encoder}, batch {config.federation.batch_size}: {where}"
    medians = {phase: statistics.median(values) for phase, values in cost.seconds.items()}
    total = sum(medians.values())
    for phase, median in medians.items():
        spread = f"{1e3 * min(cost.seconds[phase]):.1f} to {1e3 * max(cost.seconds[phase]):.1f}"
        yield f"{phase:<20}{1e3 * median:>9.1f} ms  {median / total:>6.1%}   ({spread})"
    rest = 1 - medians["forward + backward"] / total
    yield f"{'sum':<20}{1e3 * total:>9.1f} ms           all but forward + backward: {rest:.1%}"
    spread = f"{1e3 * min(cost.whole):.1f} to {1e3 * max(cost.whole):.1f}"
    yield f"{'whole step':<20}{1e3 * cost.step:>9.1f} ms           ({spread})  {cost.views / cost.step:,.0f} views/s"
    rate, flow = cost.operations / cost.step, cost.bytes / cost.step
    yield (
        f"{cost.operations / 1e12:.3f} TFLOP in matrix products and convolutions: {rate / 1e12:,.2f} TFLOP/s, "
        f"{rate / cost.matrix:.0%} of a large product's or convolution's {cost.matrix / 1e12:,.2f}"
    )
    yield (
        f"{cost.bytes / 1e9:.2f} GB in and out of kernels: {flow / 1e9:,.1f} GB/s, "
        f"{flow / cost.bandwidth:.0%} of a large copy's {cost.bandwidth / 1e9:,.1f}"
    )
    yield "peak memory: " + ", ".join(f"{name} {size / 2**20:,.0f} MiB" for name, size in cost.memory.items())
