"""Semi-supervised image classification with the channel-based ensemble (CBE)."""

__version__ = "0.1.0"
