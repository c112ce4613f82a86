"""Engines run clients: each is a function from a broadcast and client names to updates. The round loop is not theirs."""
