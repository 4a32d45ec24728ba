"""FlexMatch (Zhang et al. 2021): FixMatch with a threshold for each class that follows its progress."""

from cbe.ssl.method import Method
from cbe.ssl.thresholds.flexmatch import Curriculum

METHOD = Method(policy=Curriculum, threshold=0.95)
