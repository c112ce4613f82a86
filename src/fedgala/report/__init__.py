"""Tables and pictures, computed from records."""
