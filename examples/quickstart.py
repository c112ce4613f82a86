"""From pictures to features in ten lines: train on three domains, use the encoder on the fourth.

python examples/quickstart.py
"""

import torch

import fedgala

config = fedgala.RunConfig.from_dict(
    {
        **fedgala.PRESETS["cpu"],
        "data": {"path": "shapes", "target": "sketch", "limit": 160},
        "federation": {"rounds": 2, "epochs": 1, "batch_size": 64},
    }
)
run = fedgala.train(config)
for record in run.records.read("round"):
    print(f"round {record['round']}: loss {record['loss']:.3f}")

images = torch.rand(8, 3, 32, 32)  # your pictures, in [0, 1]
features = run.encoder(images)
print(f"{run.encoder_path}: {tuple(features.shape)}")
