"""FixMatch (Sohn et al. 2020): the strong view learns the class of a confident weak view."""

from cbe.ssl.method import Method
from cbe.ssl.thresholds import Fixed

METHOD = Method(policy=Fixed, threshold=0.95, ensemble_threshold=0.90)
