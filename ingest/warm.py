"""What a process needs before the clock of an item runs: the dictionary, templates, compiled loops.

The first process of an installation compiles the loops, for most of a minute on a busy machine; inside an
item's time that item would be refused.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np

from .chemistry.features import pocket_atoms
from .chemistry.pocket import find_pocket
from .chemistry.receptor import as_receptor
from .read.components import component
from .read.ligand import read_ligand
from .read.structure import read_structure

_PROTEIN: Final = b"""\
ATOM      1  N   ALA A   1      -0.966   0.493   1.500  1.00  0.00           N
ATOM      2  CA  ALA A   1       0.257   0.418   0.692  1.00  0.00           C
ATOM      3  C   ALA A   1      -0.094   0.017  -0.716  1.00  0.00           C
ATOM      4  O   ALA A   1      -1.056  -0.682  -0.923  1.00  0.00           O
ATOM      5  CB  ALA A   1       1.204  -0.620   1.296  1.00  0.00           C
ATOM      6  H   ALA A   1      -1.383  -0.425   1.482  1.00  0.00           H
"""
_LIGAND: Final = b"""\
methanol

  two atoms
  2  1  0  0  0  0  0  0  0  0999 V2000
    4.0000    0.0000    0.5000 C   0  0
    5.4000    0.3000    0.5000 O   0  0
  1  2  1  0
M  END
"""


@lru_cache(maxsize=1)
def warm() -> None:
    """Read a pocket of one residue, with all that a usual complex goes through."""
    component("ALA")
    receptor = as_receptor(read_structure(_PROTEIN, "warm.pdb"))
    ligand = read_ligand(_LIGAND, "warm.sdf")
    pocket = find_pocket(receptor, ligand.position, ligand.element, 8.0, waters=False)
    pocket_atoms(receptor, np.asarray(pocket.residues))
