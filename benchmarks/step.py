"""Time of one training step and its split: augmentation, forward and backward, local alignment, optimizer.

    python benchmarks/step.py                        ResNet-18, batch 128, as the paper trains
    python benchmarks/step.py --preset cpu           the small encoder of the demonstration
    python benchmarks/step.py --repeats 20 --json step.json

``fedgala bench`` with the paper's rule of discarding, which is the dearest.
"""

import sys

from fedgala.cli.app import run

if __name__ == "__main__":
    given = sys.argv[1:]
    preset = [] if any(word.startswith("--preset") for word in given) else ["--preset", "paper"]
    sys.exit(run(["bench", "--local.rule", "discard", *preset, *given]))
