"""Where images come from: a module with `load(config) -> Pool`, and `files(config)` if it is to be cached."""
