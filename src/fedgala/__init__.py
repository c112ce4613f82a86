"""Federated unsupervised domain generalization."""

__version__ = "0.1.0"
