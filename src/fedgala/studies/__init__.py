"""Studies: sets of runs, carried out side by side, and the tables that come of them."""
