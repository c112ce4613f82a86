"""fedgala as a Flower app."""
