"""Images: where they come from, how they are stored, and how two views of each are made."""
