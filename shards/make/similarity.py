"""Complexes clustered by their protein chains."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from .forest import Forest
from .identity import linked_chains


def sequence_clusters(
    chains: Sequence[Sequence[str]], link: Callable[[Sequence[str]], NDArray[np.int64]] | None = None
) -> NDArray[np.int64]:
    """Cluster complexes by their protein chains.

    Parameters
    ----------
    chains : the sequences of each complex; the clusters of its chains are joined
    link : names a member of each distinct chain's cluster; :func:`linked_chains` if None

    Returns
    -------
    shape (n,), the cluster of each complex; one without a chain is alone
    """
    distinct = sorted({s for sequences in chains for s in sequences})
    number = {s: i for i, s in enumerate(distinct)}
    leader = (link or linked_chains)(distinct)
    alone = len(distinct)
    parents = Forest(alone + len(chains))
    for i, j in enumerate(leader.tolist()):
        parents.join(i, j)
    for k, sequences in enumerate(chains):
        for s in sequences:
            parents.join(alone + k, number[s])
    roots = [parents.root(alone + k) for k in range(len(chains))]
    return np.unique(np.array(roots, np.int64), return_inverse=True)[1].astype(np.int64)
