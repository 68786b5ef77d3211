"""The embedded sample: real files of made-up complexes, with labels that follow a known formula.

:func:`write_sample` writes a folder that the table layout reads::

    labels.csv        one row a complex, as people write them: kinds, units and relations mixed
    truth.csv         the formula's value and terms, before and after noise and rounding
    dirt.csv          which complexes were made bad, how, and the reason code that is due
    structures/       protein as PDB or mmCIF, ligand as SDF or MOL2, some gzipped; or tar archives of these
    sample.json       what was asked for

:mod:`.formula` says what a label is, :mod:`.pocket` how a pocket is made, :mod:`.fragments` what ligands are.
"""

from __future__ import annotations

from .formula import Terms, score
from .writer import write_sample

__all__ = ["Terms", "score", "write_sample"]
