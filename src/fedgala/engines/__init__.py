"""Engines run clients: each maps a broadcast and names of clients to their updates. The round loop is not theirs."""
