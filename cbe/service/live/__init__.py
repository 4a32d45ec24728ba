"""How studies stand right now, for all who watch."""
