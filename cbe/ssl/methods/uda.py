"""UDA (Xie et al. 2020): the strong view follows the sharpened distribution of a confident weak view."""

from cbe.ssl.losses import soft_cross_entropy
from cbe.ssl.method import Method
from cbe.ssl.thresholds import Fixed

METHOD = Method(policy=Fixed, threshold=0.8, temperature=0.4, loss=soft_cross_entropy)
