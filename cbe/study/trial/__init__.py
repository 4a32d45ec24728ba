"""One trial: what happens in its own process, what it logs, and how it is stopped or reused."""
