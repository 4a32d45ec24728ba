"""The Ray cluster that a study runs on, and its machines as they come and go."""
