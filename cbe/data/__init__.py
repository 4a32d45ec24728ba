"""Images, the labels that may be seen of them, and where both come from."""

from cbe.data.cache import open_pool
from cbe.data.dataset import Dataset, open_dataset
from cbe.data.images import ImageSet, Pool, Stats
from cbe.data.split import Split

__all__ = ["Dataset", "ImageSet", "Pool", "Split", "Stats", "open_dataset", "open_pool"]
