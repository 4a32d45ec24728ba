"""FreeMatch (Wang et al. 2023): thresholds that adapt themselves, and a fairness term between classes."""

from cbe.ssl.method import Method
from cbe.ssl.thresholds.freematch import SelfAdaptive

METHOD = Method(policy=SelfAdaptive, extra=SelfAdaptive.fairness, fairness=0.001)
