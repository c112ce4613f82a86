"""Theorem 1, Corollary 1 and Proposition 1 in the paper's own setting: formulae, exact values and Monte Carlo."""
