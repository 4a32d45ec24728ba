"""Images, the labels that may be seen of them, and where both come from."""

from cbe.data.dataset import Dataset, open_dataset
from cbe.data.images import ImageSet, Pool
from cbe.data.split import Split

__all__ = ["Dataset", "ImageSet", "Pool", "Split", "open_dataset"]
