"""Pseudo-label (Lee 2013): a confident prediction becomes the label of the very view it was made on."""

from cbe.ssl.method import Method
from cbe.ssl.thresholds import Fixed

METHOD = Method(student="weak", teacher="same", policy=Fixed, threshold=0.95, ramp=0.4)
