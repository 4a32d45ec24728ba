"""Images, the labels that may be seen of them, and where both come from."""

from cbe.data.cache import open_pool
from cbe.data.dataset import Dataset, open_dataset
from cbe.data.facts import Facts, facts_of, look
from cbe.data.images import ImageSet, Pool, Stats, digest
from cbe.data.split import Split

__all__ = [
    "Dataset",
    "Facts",
    "ImageSet",
    "Pool",
    "Split",
    "Stats",
    "digest",
    "facts_of",
    "look",
    "open_dataset",
    "open_pool",
]
