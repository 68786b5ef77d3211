"""holoshard: structures in, shards out, batches to a model.

>>> import holoshard
>>> dataset = holoshard.open_dataset("data/shards")      # doctest: +SKIP
>>> dataset[0].position.shape                            # doctest: +SKIP
(341, 3)
"""

from .shards.complex import Affinity, Complex
from .shards.errors import HoloshardError
from .shards.read.dataset import Dataset, open_dataset

__version__ = "0.1.0"
__all__ = ["Affinity", "Complex", "Dataset", "HoloshardError", "__version__", "open_dataset"]
