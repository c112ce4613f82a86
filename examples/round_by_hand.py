"""FedGaLA by hand: three clients, a few rounds, and nothing but the pure functions. Read this first.

    python examples/round_by_hand.py

A client is a tensor of pictures, the model is one flat vector of numbers, and the paper is two calls: `judge` on the
client (local alignment) and `agreement_weights` on the server (global alignment).
"""

import torch

from fedgala.aggregation import weighted_sum
from fedgala.alignment import SIGNS, Reference, agreement_weights, discard, gram, judge
from fedgala.data.augment import Views, apply, draw
from fedgala.data.shapes import make_shapes
from fedgala.models import ENCODERS, ResNet
from fedgala.optim import OPTIMIZERS, Step
from fedgala.parameters import FlatModel
from fedgala.ssl.base import Projected, Recipe
from fedgala.ssl.losses import nt_xent

ROUNDS, STEPS, BATCH, TAU = 3, 4, 32, 0.0

torch.manual_seed(0)
shapes = make_shapes(images_per_class=8)
clients = {domain.name: domain for domain in shapes.domains if domain.name != "sketch"}  # sketch stays unseen
small = ENCODERS["small"]
model = FlatModel(Projected(ResNet(small), Recipe(small.features, hidden=64, output=32)))
layout, adam, views = model.layout, OPTIMIZERS["adam"], Views(crop=32)
draws = torch.Generator().manual_seed(0)

global_weights = model.weights.clone()  # theta
reference = None  # the last global update, theta_t - theta_(t-1); none before the first round

for number in range(1, ROUNDS + 1):
    updates = []
    for name, data in clients.items():
        # a client: start from the global model, train on its own pictures, without labels
        model.weights.copy_(global_weights)
        moments, kept = adam.start(layout), 0.0
        for _ in range(STEPS):
            batch = torch.randint(len(data), (BATCH,), generator=draws)
            two_views = apply(data.pictures(batch), draw(data.sizes[batch].repeat(2, 1), views, draws), views.crop)
            model.gradients.zero_()
            loss = nt_xent(model.module(two_views), temperature=0.2)
            torch.autograd.backward(loss)

            # local alignment: only layers whose descent agrees with the global direction may move
            keep = torch.ones(len(layout.segments), dtype=torch.bool)
            if reference is not None:
                evidence = judge(model.gradients, reference, layout, TAU, SIGNS["descent"])
                keep = discard(model.gradients, reference, evidence, layout, 0.0)
            adam.step_(model.weights, model.gradients, moments, keep, layout, Step(learning_rate=3e-3))
            kept += float(keep.float().mean()) / STEPS
        updates.append(model.weights - global_weights)
        print(f"round {number}  {name:<13} loss {loss.item():.3f}  kept {kept:.0%} of the tensors")

    # the server: clients that agree with the common direction count more
    shares = torch.tensor([float(len(data)) for data in clients.values()])
    weights = agreement_weights(gram(updates, layout).sum(0), shares / shares.sum(), iterations=3)
    update = weighted_sum(updates, weights.expand(len(layout.segments), -1), layout)
    global_weights = global_weights + update
    reference = Reference.of(update, layout, unit="layer")
    print(f"round {number}  weights {[round(w, 3) for w in weights.tolist()]}")
