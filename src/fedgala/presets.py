"""Named sets of choices, as nested settings on top of the defaults; what is not said keeps its default.

`paper` is the text: Algorithm 1 literally, the appendix's hyper-parameters. `reference` is how the released code
behaves, as far as its behaviour is a choice and not a defect: see ``docs/method.md`` for what it does not reproduce.
`fedsimclr` is the paper's main baseline. `cpu` fits two cores and small pictures.
"""

from typing import Any

CPU: dict[str, Any] = {
    "model": {"encoder": "small", "projector_hidden": 256, "projector_output": 128},
    "federation": {"rounds": 8, "epochs": 1.0},
    "ssl": {"temperature": 0.2},
    "data": {"size": 64},
}

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {"local": {"sign": "printed"}},
    "reference": {
        "local": {"sign": "printed", "unit": "tensor", "first_round": 3},
        "server": {"unit": "tensor"},
        "optimizer": {"learning_rate": 1e-4},
        "probe": {"stratified": False, "learning_rate": 1e-4},
    },
    "fedsimclr": {"local": {"rule": "none"}, "server": {"rule": "fedavg"}},
    "cpu": CPU,
}
