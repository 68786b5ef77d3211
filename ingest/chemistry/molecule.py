"""From an RDKit molecule to the arrays of a ligand.

Everything a record needs of the ligand's chemistry is read off here, once, in two passes over atoms and
bonds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem, rdBase
from rdkit.Chem import rdCIPLabeler, rdinchi, rdmolops

from ...shards.complex import BOND_ORDERS, BOND_STEREOS, CHIRALITIES, HYBRIDISATIONS, encode_names
from ...shards.errors import StructureError

_HYBRIDISATION_NAMES: Final = {
    "UNSPECIFIED": "unknown", "S": "s", "SP": "sp", "SP2": "sp2", "SP3": "sp3", "SP3D": "sp3d",
    "SP3D2": "sp3d2",
}  # fmt: skip
_ORDER_NAMES: Final = {
    "SINGLE": "single", "DOUBLE": "double", "TRIPLE": "triple", "AROMATIC": "aromatic",
    "QUADRUPLE": "quadruple", "DATIVE": "dative", "DATIVEONE": "dative",
}  # fmt: skip
# RDKit's enumerations number their members; these arrays turn a member's number into our vocabulary's.
_HYBRIDISATION: Final = np.array(
    [
        HYBRIDISATIONS.index(_HYBRIDISATION_NAMES.get(v.name, "other"))
        for v in Chem.HybridizationType.values.values()
    ],
    dtype=np.uint8,
)
_ORDER: Final = np.array(
    [BOND_ORDERS.index(_ORDER_NAMES.get(v.name, "unknown")) for v in Chem.BondType.values.values()],
    dtype=np.uint8,
)
_ATOM_METHODS: Final = {
    "element": (Chem.Atom.GetAtomicNum, np.uint8), "charge": (Chem.Atom.GetFormalCharge, np.int8),
    "hybridisation": (Chem.Atom.GetHybridization, np.uint8), "hydrogens": (Chem.Atom.GetTotalNumHs, np.uint8),
    "aromatic": (Chem.Atom.GetIsAromatic, np.uint8), "ring": (Chem.Atom.IsInRing, np.uint8),
}  # fmt: skip
_BOND_METHODS: Final = {
    "first": (Chem.Bond.GetBeginAtomIdx, np.int64), "second": (Chem.Bond.GetEndAtomIdx, np.int64),
    "order": (Chem.Bond.GetBondType, np.uint8), "conjugated": (Chem.Bond.GetIsConjugated, np.uint8),
    "ring": (Chem.Bond.IsInRing, np.uint8),
}  # fmt: skip
_SP3: Final = int(Chem.HybridizationType.SP3)
_SYMBOLS: Final = encode_names(["*", *map(Chem.GetPeriodicTable().GetElementSymbol, range(1, 119))], 4)
_EXOTIC: Final = re.compile("@(?:TB|SP|OH|AL|TH)")  # stereo classes of SMILES beyond the tetrahedral
_TETRAHEDRAL: Final = frozenset({
    Chem.ChiralType.CHI_UNSPECIFIED, Chem.ChiralType.CHI_TETRAHEDRAL_CW, Chem.ChiralType.CHI_TETRAHEDRAL_CCW,
})  # fmt: skip
_DATIVE: Final = frozenset({
    Chem.BondType.DATIVE, Chem.BondType.DATIVEONE, Chem.BondType.DATIVEL, Chem.BondType.DATIVER,
})  # fmt: skip
CIP_EFFORT: Final = 250_000  # steps of the labeller; symmetric cages beyond it keep the simpler labels
_MAX_IDENTITIES: Final = 10_000  # some 2 MB
_IDENTITIES: Final[dict[str, tuple[str, str]]] = {}


@dataclass(frozen=True, slots=True, eq=False)
class Ligand:
    """A posed ligand: the ligand's share of the atom and bond columns of ``FIELDS``, in their value dtypes.

    Attributes
    ----------
    position : float64 (n, 3), angstrom, in the frame of the file
    element : uint8 (n,), atomic number
    charge : int8 (n,), formal
    hybridisation, degree, hydrogens, aromatic, ring, chirality : uint8 (n,), as in ``FIELDS``; ``degree``
        counts heavy neighbours within the ligand
    name : uint8 (n, 4), atom names; the element's symbol where the file has no names
    row : int64 (n,), place of each atom in the atom list that was read
    b_factor, occupancy : float32 (n,)
    bond_atoms : uint16 (m, 2), first < second, sorted
    bond_order, bond_conjugated, bond_ring, bond_stereo : uint8 (m,)
    smiles : canonical isomeric SMILES of the heavy atoms, stereo from the coordinates
    inchikey : "" where InChI has no answer
    scaffold : Murcko scaffold as SMILES, "" without a ring
    title : name in the file
    repairs : codes of ``REPAIRS``
    """

    position: NDArray[np.float64]
    element: NDArray[np.uint8]
    charge: NDArray[np.int8]
    hybridisation: NDArray[np.uint8]
    degree: NDArray[np.uint8]
    hydrogens: NDArray[np.uint8]
    aromatic: NDArray[np.uint8]
    ring: NDArray[np.uint8]
    chirality: NDArray[np.uint8]
    name: NDArray[np.uint8]
    row: NDArray[np.int64]
    b_factor: NDArray[np.float32]
    occupancy: NDArray[np.float32]
    bond_atoms: NDArray[np.uint16]
    bond_order: NDArray[np.uint8]
    bond_conjugated: NDArray[np.uint8]
    bond_ring: NDArray[np.uint8]
    bond_stereo: NDArray[np.uint8]
    smiles: str
    inchikey: str
    scaffold: str
    title: str
    repairs: tuple[str, ...]

    @property
    def n_atoms(self) -> int:
        """Atoms, hydrogens included where they were kept."""
        return len(self.element)

    @property
    def n_heavy_atoms(self) -> int:
        """Atoms that are not hydrogen."""
        return int(np.count_nonzero(self.element != 1))


@dataclass(frozen=True, slots=True)
class Posed:
    """A perceived molecule with one 3-D conformer, and what the file said of its atoms.

    Attributes
    ----------
    mol : RDKit molecule, sanitised, stereo assigned
    row : int64 (n,), place of each of its atoms in the file's atom list
    names : atom names by atom of the *file*, or None
    title, repairs : as in :class:`Ligand`
    """

    mol: Any
    row: NDArray[np.int64]
    names: tuple[str, ...] | None = None
    title: str = ""
    repairs: tuple[str, ...] = ()


def to_ligand(posed: Posed) -> Ligand:
    """Arrays and descriptors of a perceived molecule, which loses its conformer.

    Raises StructureError, ``ligand_unreadable``, for what RDKit perceives but cannot write.
    """
    with rdBase.BlockLogs():
        try:
            return _to_ligand(posed)
        except (Chem.MolSanitizeException, RuntimeError) as error:
            raise StructureError("ligand_unreadable", _first_line(error)) from error


def _first_line(error: Exception) -> str:
    """What RDKit complains of, without its place in RDKit's sources."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _to_ligand(posed: Posed) -> Ligand:
    mol = posed.mol
    heavy = mol if mol.GetNumHeavyAtoms() == mol.GetNumAtoms() else Chem.RemoveAllHs(mol)
    smiles = Chem.MolToSmiles(heavy)
    if _EXOTIC.search(smiles):
        for some in {id(mol): mol, id(heavy): heavy}.values():
            _keep_tetrahedral(some)
        smiles = Chem.MolToSmiles(heavy)
    _label_stereo(mol, smiles)
    position = mol.GetConformer().GetPositions()
    # With coordinates InChI perceives stereo anew; the key must depend on what the SMILES says alone.
    heavy.RemoveAllConformers()
    atoms = _atom_columns(mol)
    bonds = _bond_columns(mol, stereo="/" in smiles or "\\" in smiles)
    key, murcko = _identity(smiles, heavy)
    n = mol.GetNumAtoms()
    if posed.names is None:
        name = _SYMBOLS.take(atoms["element"], axis=0)  # several times as fast as by brackets
    else:
        name = encode_names([posed.names[i] for i in posed.row.tolist()], 4)
    first, second = bonds["bond_atoms"].T.astype(np.int64)
    if heavy is not mol:
        first, second = first[atoms["element"][second] != 1], second[atoms["element"][first] != 1]
    degree = np.bincount(first, minlength=n) + np.bincount(second, minlength=n)
    return Ligand(
        position=position,
        degree=degree.astype(np.uint8),
        name=name,
        row=posed.row,
        b_factor=np.zeros(n, dtype=np.float32),
        occupancy=np.ones(n, dtype=np.float32),
        smiles=smiles,
        inchikey=key,
        scaffold=murcko,
        title=posed.title,
        repairs=posed.repairs,
        **atoms,
        **bonds,
    )


def _identity(smiles: str, mol: Any) -> tuple[str, str]:
    """InChIKey and scaffold, half of a ligand's time: remembered, as poses of one compound come in series."""
    if smiles not in _IDENTITIES:
        if len(_IDENTITIES) >= _MAX_IDENTITIES:
            _IDENTITIES.clear()
        _IDENTITIES[smiles] = (inchikey(mol), scaffold(mol))
    return _IDENTITIES[smiles]


def forget() -> None:
    """Empty the memory of identities."""
    _IDENTITIES.clear()


def inchikey(mol: Any) -> str:
    """Standard InChIKey of a molecule without conformers, or "" where InChI refuses it."""
    try:
        return str(rdinchi.MolToInchiKey(mol, "")) or str(rdinchi.MolToInchiKey(_without_dative(mol), ""))
    except Chem.MolSanitizeException:
        return ""


def _without_dative(mol: Any) -> Any:
    """Coordination bonds as single ones: InChI has no others (and disconnects metals in any case)."""
    plain = Chem.RWMol(mol)
    for bond in plain.GetBonds():
        if bond.GetBondType() in _DATIVE:
            bond.SetBondType(Chem.BondType.SINGLE)
    return plain


def scaffold(mol: Any) -> str:
    """Murcko scaffold (Bemis and Murcko, J. Med. Chem. 1996, 39, 2887) as SMILES; "" without a ring."""
    if not mol.GetRingInfo().NumRings():
        return ""
    return str(Chem.MolToSmiles(rdmolops.MurckoDecompose(mol)))


def _keep_tetrahedral(mol: Any) -> None:
    """Light elements are tetrahedral: RDKit takes a badly drawn phosphate for a trigonal bipyramid."""
    for atom in mol.GetAtoms():
        if atom.GetAtomicNum() < 19 and atom.GetChiralTag() not in _TETRAHEDRAL:
            atom.SetChiralTag(Chem.ChiralType.CHI_UNSPECIFIED)


def _label_stereo(mol: Any, smiles: str) -> None:
    """R and S, E and Z by the full rules (Hanson et al., J. Chem. Inf. Model. 2018, 58, 1755) where there are
    any.
    """
    if "@" not in smiles and "/" not in smiles and "\\" not in smiles:
        return
    try:
        rdCIPLabeler.AssignCIPLabels(mol, maxRecursiveIterations=CIP_EFFORT)
    except RuntimeError:  # MaxIterationsExceeded: the labels of the faster rules stay
        return


def _columns(methods: dict[str, Any], things: list[Any]) -> dict[str, NDArray[Any]]:
    # RDKit's own iterators are written in Python: mapping its methods over one list is three times as fast.
    return {k: np.fromiter(map(f, things), dtype, len(things)) for k, (f, dtype) in methods.items()}


def _atom_columns(mol: Any) -> dict[str, NDArray[Any]]:
    atoms = list(map(mol.GetAtomWithIdx, range(mol.GetNumAtoms())))
    found = _columns(_ATOM_METHODS, atoms)
    chirality = np.zeros(len(atoms), dtype=np.uint8)
    for i in (found["hybridisation"] == _SP3).nonzero()[0].tolist():
        if atoms[i].HasProp("_CIPCode"):
            label = atoms[i].GetProp("_CIPCode").upper()  # r and s: pseudoasymmetric
            chirality[i] = CHIRALITIES.index(label if label in ("R", "S") else "unassigned")
        elif atoms[i].HasProp("_ChiralityPossible"):
            chirality[i] = CHIRALITIES.index("unassigned")
    if (found["element"] == 1).any():
        found["hydrogens"] += np.array(
            [sum(n.GetAtomicNum() == 1 for n in atom.GetNeighbors()) for atom in atoms], np.uint8
        )
    found["hybridisation"] = _HYBRIDISATION[found["hybridisation"]]
    return {**found, "chirality": chirality}


def _bond_columns(mol: Any, stereo: bool) -> dict[str, NDArray[Any]]:
    bonds = list(map(mol.GetBondWithIdx, range(mol.GetNumBonds())))
    found = _columns(_BOND_METHODS, bonds)
    labels = np.array(list(map(_bond_stereo, bonds)) if stereo else [0] * len(bonds), dtype=np.uint8)
    first, second = found["first"], found["second"]
    key = np.minimum(first, second) << 32 | np.maximum(first, second)
    order = key.argsort()
    key = key[order]
    return {
        "bond_atoms": np.stack([key >> 32, key & 0xFFFFFFFF], axis=1).astype(np.uint16),
        "bond_order": _ORDER[found["order"][order]],
        "bond_conjugated": found["conjugated"][order],
        "bond_ring": found["ring"][order],
        "bond_stereo": labels[order],
    }


def _bond_stereo(bond: Any) -> int:
    """E or Z, "any" for a double bond that could be either but whose coordinates do not say."""
    if bond.HasProp("_CIPCode") and bond.GetProp("_CIPCode") in "EZ":
        return BOND_STEREOS.index(bond.GetProp("_CIPCode"))
    kind = bond.GetStereo()
    if kind in (Chem.BondStereo.STEREOE, Chem.BondStereo.STEREOTRANS):
        return BOND_STEREOS.index("E")
    if kind in (Chem.BondStereo.STEREOZ, Chem.BondStereo.STEREOCIS):
        return BOND_STEREOS.index("Z")
    return BOND_STEREOS.index("any") if kind == Chem.BondStereo.STEREOANY else 0
