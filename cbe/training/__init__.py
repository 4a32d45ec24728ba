"""The training loop of one model on one device, or on one of several workers."""
