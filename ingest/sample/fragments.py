"""The grammar of the sample's ligands: heads, rings, linkers and substituents, written as SMILES pieces.

A molecule is a chain ``head ring (linker ring)* tail``. The first atom of a ring is where its left
neighbour attaches; ``{n}`` is where the chain goes on, ``{s}`` and ``{t}`` may carry a substituent, ``{a}``
and ``{b}`` are ring-closure digits. Scaffolds and groups are those common in drugs (Bemis and Murcko,
J. Med. Chem. 1996, 39, 2887; Ertl, J. Chem. Inf. Comput. Sci. 2003, 43, 374).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from rdkit import Chem

HEADS: Final = (
    "", "", "F", "Cl", "C", "CO", "O", "N", "N#C", "FC(F)(F)", "CC(C)", "CN(C)", "NC(=O)", "CNC(=O)",
    "NS(=O)(=O)", "CS(=O)(=O)", "[O-]C(=O)", "[O-]C(=O)C", "NC", "CNC", "OC", "CC(=O)N", "NC(=N)",
)  # fmt: skip
RINGS: Final = (
    "c{a}cc{s}c{n}cc{a}{t}",  # benzene, para
    "c{a}c{s}c{n}cc{t}c{a}",  # benzene, meta
    "c{a}cc{s}c{n}nc{a}{t}",  # pyridine
    "c{a}ncc{n}c{s}c{a}",  # pyridine
    "c{a}nc{s}c{n}cn{a}",  # pyrimidine
    "c{a}sc{n}c{s}c{a}",  # thiophene
    "c{a}nc{n}c{s}s{a}",  # thiazole
    "c{a}nc{n}co{a}",  # oxazole
    "c{a}[nH]c{n}c{s}n{a}",  # imidazole
    "c{a}[nH]nc{n}c{a}{s}",  # pyrazole
    "c{a}noc{n}n{a}",  # 1,2,4-oxadiazole
    "c{a}cc{b}cc{n}c{s}cc{b}[nH]{a}",  # indole
    "c{a}nc{b}cc{n}c{s}cc{b}[nH]{a}",  # benzimidazole
    "c{a}n[nH]c{b}cc{n}c{s}cc{a}{b}",  # indazole
    "c{a}cc{s}nc{b}cc{n}ccc{a}{b}",  # quinoline
    "c{a}nc{s}nc{b}cc{n}ccc{a}{b}",  # quinazoline
    "c{a}ccc{b}cc{n}c{s}cc{b}c{a}",  # naphthalene
    "c{a}cc{b}cc{n}ccc{b}o{a}",  # benzofuran
    "C{a}CCC{n}CC{a}",  # cyclohexane
    "N{a}CCC{n}CC{a}",  # piperidine
    "N{a}CCN{n}CC{a}",  # piperazine
    "N{a}CCC{n}C{a}",  # pyrrolidine
    "C{a}CCN{n}CC{a}",  # piperidine, by its carbon
    "N{a}CCOCC{a}",  # morpholine
    "C{a}CCOCC{a}",  # oxane
    "N{a}CCCC{a}=O",  # pyrrolidinone
)
LINKERS: Final = (
    "", "", "C", "O", "N", "S", "CC", "OC", "CO", "CN", "C(=O)", "C(=O)N", "NC(=O)", "C(=O)NC", "CNC(=O)",
    "S(=O)(=O)N", "NS(=O)(=O)", "NC(=O)N", "OCC",
)  # fmt: skip
SUBSTITUENTS: Final = (
    "", "", "", "F", "Cl", "Br", "C", "O", "N", "OC", "C(F)(F)F", "C#N", "C(N)=O", "C(=O)[O-]", "CN", "CO",
    "CC", "S(N)(=O)=O", "C(C)C",
)  # fmt: skip

MIN_HEAVY, MAX_HEAVY = 13, 30
SKELETONS, DECORATIONS = 100, 16  # attempts: a skeleton that no decoration suits must not hold a series up

# Bonds that no chemist would put on a shelf: N-N, N-O and O-O outside rings, aminals, N-S without oxygens.
UNWANTED: Final = tuple(
    Chem.MolFromSmarts(s)
    for s in (
        "[#7;!a]-[#7,#8]", "[#8]-[#7,#8,#16]", "[#7]-[#16;!$(S(=O)=O)]", "[#7;!a;X3]-[CX4]-[#7!a,#8]",
        "[#16]-[#16]", "[OX2]-[CX4]-[OX2]", "[#16;X2;!a]-[#7,#8]", "[#16;X2;!a]-[CX4]-[#7,#8]",
        "C(=O)-C(=O)", "[OX2]C(=O)[#7,#8]", "[#16](=O)(=O)-[#16,#6](=O)", "[F,Cl,Br]-[!#6]",
        "[F,Cl,Br]-[CX3]=O", "[#7]-[F,Cl,Br]", "N(C=O)C=O", "[NX3;!a]([a])([a])[a]", "O-C#N", "N-C#N",
        "[OX1-,OX2H]-C(=O)-[#7,#8,#16]",
    )
)  # fmt: skip

# An aliphatic amine is protonated at pH 7, an amidine too; aniline, amide, sulphonamide are not.
BASIC: Final = (
    Chem.MolFromSmarts("[NX2;H1;$(N=C-[NX3;H2])]"),
    Chem.MolFromSmarts("[NX3;+0;!a;!$(N-[!#6;!#1]);!$(N-[#6]=,#,:[*])]"),
)


def molecule(core: np.random.Generator, variant: np.random.Generator) -> Chem.Mol:
    """A drug-like molecule without coordinates, charged as at pH 7.

    ``core`` draws the rings and linkers, hence the scaffold; ``variant`` draws what hangs on them. The same
    core with another variant is another member of its series.
    """
    for _ in range(SKELETONS):
        rings, linkers = _skeleton(core)
        for _ in range(DECORATIONS):
            mol = Chem.MolFromSmiles(_write(rings, linkers, variant))
            if mol is not None and _acceptable(mol):
                return _protonated(mol)
    raise AssertionError("the grammar yields no molecule; its filters contradict its pieces")


def _skeleton(rng: np.random.Generator) -> tuple[list[str], list[str]]:
    n_rings = int(rng.choice((2, 3), p=(0.6, 0.4)))
    open_rings = [r for r in RINGS if "{n}" in r]
    rings = [open_rings[rng.integers(len(open_rings))] for _ in range(n_rings - 1)]
    rings.append(RINGS[rng.integers(len(RINGS))])
    return rings, [LINKERS[rng.integers(len(LINKERS))] for _ in range(n_rings - 1)]


def _write(rings: list[str], linkers: list[str], rng: np.random.Generator) -> str:
    """SMILES of the chain, written from its tail to its head."""
    text = _draw(rng)
    for k in reversed(range(len(rings))):
        branch = f"({text})" if text else ""
        decorations = {slot: _branch(_draw(rng)) if rng.random() < 0.4 else "" for slot in "st"}
        ring = rings[k].format(a=2 * k + 1, b=2 * k + 2, n=branch, **decorations)
        text = (linkers[k - 1] if k else HEADS[rng.integers(len(HEADS))]) + ring
    return text


def _draw(rng: np.random.Generator) -> str:
    return SUBSTITUENTS[rng.integers(len(SUBSTITUENTS))]


def _branch(text: str) -> str:
    return f"({text})" if text else ""


def _acceptable(mol: Chem.Mol) -> bool:
    if not MIN_HEAVY <= mol.GetNumAtoms() <= MAX_HEAVY:
        return False
    return not any(mol.HasSubstructMatch(bad) for bad in UNWANTED)


def _protonated(mol: Chem.Mol) -> Chem.Mol:
    """The molecule with its first basic nitrogen charged; a second one nearby would not be."""
    for pattern in BASIC:
        for (index,) in mol.GetSubstructMatches(pattern)[:1]:
            atom = mol.GetAtomWithIdx(index)
            atom.SetFormalCharge(1)
            atom.SetNumExplicitHs(atom.GetTotalNumHs() + 1)
            atom.SetNoImplicit(True)
            Chem.SanitizeMol(mol)
            return mol
    return mol
