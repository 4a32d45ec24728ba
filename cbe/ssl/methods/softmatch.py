"""SoftMatch (Chen et al. 2023): no cut-off; a prediction weighs as much as it is confident."""

from cbe.ssl.method import Method
from cbe.ssl.thresholds.softmatch import TruncatedGaussian

METHOD = Method(policy=TruncatedGaussian)
