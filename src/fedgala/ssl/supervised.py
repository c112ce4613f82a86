"""Cross-entropy, for sites that have labels (the paper's Remark A1): the same alignment, without self-supervision.

The projector is the classifier. It answers for the unseen domain by itself, so no probe is needed.
"""

from torch import nn
from torch.nn import functional as F

from fedgala.ssl.base import Batch, Outcome, Projected, Recipe, SSLMethod


class Classifier(Projected):
    """An encoder with one linear layer to the classes on top."""

    def __init__(self, encoder: nn.Module, recipe: Recipe):
        super().__init__(encoder, recipe)
        self.projector = nn.Linear(recipe.features, recipe.classes)


def loss(module: nn.Module, batch: Batch) -> Outcome:
    """Cross-entropy of both views with the image's label."""
    assert isinstance(module, Classifier) and batch.labels is not None
    answers = module(batch.views)
    return Outcome(F.cross_entropy(answers.float(), batch.labels.repeat(2)), answers)


SUPERVISED = SSLMethod(Classifier, loss, classifies=True, needs=frozenset({"labels"}))
