"""What a model must beat: predictors that know nothing, only the ligand, or only who touches whom.

    mean          the mean pK of the training split
    heavy_atoms   least squares of pK on the number of the ligand's heavy atoms
    fingerprints  random forest on Morgan fingerprints of the ligand, counted, and its number of heavy
                  atoms; it never sees the protein. Rogers & Hahn, J. Chem. Inf. Model. 50 (2010) 742,
                  doi:10.1021/ci100050t; radius 2, folded to 2,048 counts
    contacts      RF-Score: Ballester & Mitchell, Bioinformatics 26 (2010) 1169,
                  doi:10.1093/bioinformatics/btq112: how many pairs of a protein and a ligand atom of each
                  of 4 x 9 elements lie within 12 angstrom; random forest of 500 trees trying 5 features a
                  split, which had the least out-of-bag error there. A pocket that was cut at 8 angstrom
                  lacks the outer pairs.

All are fitted on the exact labels of the training split alone; bounds are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ...shards.complex import RELATIONS, Complex
from ...shards.console import progress
from ...shards.errors import MissingExtraError, UsageError
from .bootstrap import Floats, Ints
from .metrics import exact

if TYPE_CHECKING:
    from ...shards.read.dataset import Dataset

BASELINES: Final = ("mean", "heavy_atoms", "fingerprints", "contacts")
PROTEIN_ELEMENTS: Final = (6, 7, 8, 16)
LIGAND_ELEMENTS: Final = (6, 7, 8, 9, 15, 16, 17, 35, 53)
CONTACT_ANGSTROM: Final = 12.0
MORGAN_RADIUS: Final = 2
MORGAN_SIZE: Final = 2048
N_TREES: Final = 500
TREE_FEATURES: Final[Mapping[str, float | int]] = {
    "fingerprints": 0.1,  # most counts are zero: a third, usual for regression, is slower and no better
    "contacts": 5,
}


@dataclass(frozen=True, slots=True)
class Ligands:
    """What the baselines know of n complexes.

    Attributes
    ----------
    heavy_atoms : atoms of the ligand that are not hydrogen, float64, shape (n,)
    contacts : counts by protein element (slow axis) and ligand element, float64, shape (n, 36)
    smiles : of the ligand, "" where the data set has none
    """

    heavy_atoms: Floats
    contacts: Floats
    smiles: tuple[str, ...]


def describe(complexes: Iterable[Complex], n: int) -> Ligands:
    """Read n complexes and count."""
    heavy, contacts, smiles = np.zeros(n), np.zeros((n, 36)), list[str]()
    with progress("baselines", total=n) as bar:
        for row, holo in enumerate(complexes):
            heavy[row] = np.count_nonzero(holo.element[holo.is_ligand] > 1)
            contacts[row] = contact_counts(holo)
            smiles.append(str(holo.text.get("smiles", "")))
            bar.advance()
    return Ligands(heavy, contacts, tuple(smiles))


def contact_counts(holo: Complex) -> Floats:
    """Pairs of a protein and a ligand atom within 12 angstrom, by their elements, shape (36,)."""
    is_ligand = holo.is_ligand
    counts = np.zeros((len(PROTEIN_ELEMENTS), len(LIGAND_ELEMENTS)))
    position = holo.position.astype(np.float64)
    for column, element in enumerate(LIGAND_ELEMENTS):
        ligand = position[is_ligand & (holo.element == element)]
        if not len(ligand):
            continue
        for row, other in enumerate(PROTEIN_ELEMENTS):
            protein = position[~is_ligand & (holo.element == other)]
            squared = ((protein[:, None] - ligand[None]) ** 2).sum(axis=-1)
            counts[row, column] = np.count_nonzero(squared < CONTACT_ANGSTROM**2)
    return counts.ravel()


def fingerprints(smiles: Sequence[str]) -> NDArray[np.float32]:
    """Morgan counts, shape (n, 2048); zeros for a SMILES that RDKit does not read.

    Raises
    ------
    MissingExtraError : RDKit is not installed
    """
    try:
        from rdkit import Chem, rdBase
        from rdkit.Chem import rdFingerprintGenerator
    except ModuleNotFoundError as error:
        raise MissingExtraError("rdkit", "bench") from error
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=MORGAN_RADIUS, fpSize=MORGAN_SIZE)
    counts = np.zeros((len(smiles), MORGAN_SIZE), dtype=np.float32)
    with rdBase.BlockLogs():
        for row, text in enumerate(smiles):
            molecule = Chem.MolFromSmiles(text) if text else None
            if molecule is not None:
                counts[row] = generator.GetCountFingerprintAsNumPy(molecule)
    return counts


def forest(train: NDArray[Any], pk: Floats, test: NDArray[Any], max_features: float | int, seed: int
           ) -> Floats:  # fmt: skip
    """Predict with a random forest of regression trees grown to the end.

    Raises
    ------
    MissingExtraError : scikit-learn is not installed
    """
    try:
        from sklearn.ensemble import RandomForestRegressor
    except ModuleNotFoundError as error:
        raise MissingExtraError("scikit-learn", "bench") from error
    model = RandomForestRegressor(N_TREES, max_features=max_features, random_state=seed, n_jobs=-1)
    model.fit(train, pk)
    model.set_params(n_jobs=1)  # threads would add the trees in any order, and so change the last digit
    return np.asarray(model.predict(test), dtype=np.float64)


def fit(name: str, train: Ligands, pk: Floats, test: Ligands, seed: int = 0) -> Floats:
    """Predicted pK of the test complexes, shape (n_test,).

    Parameters
    ----------
    name : one of BASELINES
    pk : measured pK of the training complexes, all exact, shape (n_train,)
    seed : of the forests
    """
    n = len(test.heavy_atoms)
    if name == "mean":
        return np.full(n, pk.mean())
    if name == "heavy_atoms":
        spread = train.heavy_atoms - train.heavy_atoms.mean()
        variance = spread @ spread
        slope = spread @ pk / variance if variance else 0.0
        return np.asarray(pk.mean() + slope * (test.heavy_atoms - train.heavy_atoms.mean()))
    if name == "fingerprints":
        x, y = (np.column_stack([fingerprints(t.smiles), t.heavy_atoms]) for t in (train, test))
        return forest(x, pk, y, TREE_FEATURES[name], seed)
    if name == "contacts":
        return forest(train.contacts, pk, test.contacts, TREE_FEATURES[name], seed)
    raise UsageError(f"no baseline is called {name!r}; there are {', '.join(BASELINES)}")


def predict_baselines(dataset: Dataset, train: Ints, test: Ints, seed: int = 0,
                      names: Sequence[str] = BASELINES
                      ) -> tuple[dict[str, Floats], dict[str, str]]:  # fmt: skip
    """Fit on the rows ``train`` of a data set, predict the rows ``test``.

    Returns
    -------
    predicted pK by name, shape (len(test),) each; and why a baseline was left out, by name

    Raises
    ------
    UsageError : the training rows have no exact label
    """
    pk = np.asarray(dataset.column("pk"), dtype=np.float64)[train]
    relations = [RELATIONS[code] for code in dataset.column("pk_relation")[train]]
    known = exact(pk, relations)
    if not known.any():
        raise UsageError(
            f"baselines learn from exact labels of the training split, which has none in {len(train)} "
            "complexes; evaluate without baselines"
        )
    rows = np.concatenate([train[known], test])
    told = describe((dataset[int(row)] for row in rows), len(rows))
    cut = int(known.sum())
    head, tail = (
        Ligands(told.heavy_atoms[part], told.contacts[part], told.smiles[part])
        for part in (slice(0, cut), slice(cut, None))
    )
    predicted, left_out = dict[str, Floats](), dict[str, str]()
    for name in names:
        try:
            predicted[name] = fit(name, head, pk[known], tail, seed)
        except MissingExtraError as error:
            left_out[name] = str(error)
    return predicted, left_out
