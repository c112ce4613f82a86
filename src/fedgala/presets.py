"""Named sets of choices, as nested settings on top of the defaults; what is not said keeps its default.

`paper` is the text: Algorithm 1 literally, the appendix's hyper-parameters. `reference` is how the released code
behaves, as far as its behaviour is a choice and not a defect: see ``docs/method.md`` for what it does not reproduce.
`cpu` fits two cores, small pictures and minutes: few steps need mild views. What is learnt, and how clients are
combined, is said by a method: see `methods`.
"""

from typing import Any

CPU: dict[str, Any] = {
    "model": {"encoder": "small", "projector_hidden": 256, "projector_output": 128, "predictor_hidden": 256},
    "views": {"scale": [0.5, 1.0], "brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1},
    "federation": {"rounds": 12, "epochs": 1.0, "batch_size": 64},
    "ssl": {"temperature": 0.2, "queue": 256},
    "data": {"size": 64},
}

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {"local": {"rule": "discard", "sign": "printed"}},
    "reference": {
        "local": {"rule": "discard", "sign": "printed", "unit": "tensor", "first_round": 3},
        "server": {"unit": "tensor"},
        "optimizer": {"learning_rate": 1e-4},
        "probe": {"stratified": False, "learning_rate": 1e-4},
    },
    "cpu": CPU,
}
