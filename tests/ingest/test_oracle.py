"""Biopython as an independent reader of every PDB and mmCIF file of the shared pack that both can read.

Biopython's strict rules differ from ours in ways that are listed in ``KNOWN`` and nowhere else.
"""

from __future__ import annotations

import gzip
import io
import warnings
from pathlib import Path

import numpy as np
import pytest
from Bio.PDB import MMCIFParser, PDBParser

from holoshard.ingest.chemistry.receptor import resolve_altlocs
from holoshard.ingest.read.structure import Structure, read_structure, sniff
from holoshard.shards.errors import StructureError

# The end of the path -> why Biopython sees other atoms or residues there.
KNOWN = {
    "34-ligand-after-endmdl/complex.pdb": "the atom after ENDMDL, which Biopython drops",
    "pdb-tools/dummy_altloc3.pdb": "residues of two names, atom by atom: Biopython loses the second name",
    "perses/imidazole-epik-charged.pdb": "two files in one: Biopython reads on after END",
}
PARTS = 12


def contents(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def structure_files(shared: Path) -> list[Path]:
    ends = (".pdb", ".pdb.gz", ".ent", ".cif", ".cif.gz", ".pdbqt")
    return sorted(p for p in shared.rglob("*") if p.is_file() and p.name.endswith(ends))


def by_biopython(data: bytes, kind: str):
    text = io.StringIO(data.decode("latin-1"))
    parser = (
        PDBParser(QUIET=True, PERMISSIVE=True)
        if kind == "pdb"
        else MMCIFParser(QUIET=True, auth_residues=True)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return parser.get_structure("x", text)


def chosen(atoms) -> str:
    """The letter of a place by our rule: highest mean occupancy, ties to the first; "" without letters."""
    letters: dict[str, list[float]] = {}
    for atom in atoms:
        if atom.get_altloc().strip():
            letters.setdefault(atom.get_altloc(), []).append(atom.get_occupancy() or 0.0)
    return min(letters, key=lambda a: (-round(float(np.mean(letters[a])), 6), a), default="")


def atoms_of(model) -> dict[tuple, tuple[float, float, float]]:
    """(chain, number, insertion, residue, atom) -> coordinates, alternates chosen by our rule."""
    out = {}
    for chain in model:
        places: dict[tuple, list] = {}
        for residue in chain.get_unpacked_list():
            _, number, insertion = residue.id
            places.setdefault((number, insertion.strip()), []).extend(residue.get_unpacked_list())
        for (number, insertion), atoms in places.items():
            letter = chosen(atoms)
            for atom in atoms:
                if atom.get_altloc().strip() in ("", letter):
                    key = (
                        chain.id.strip(),
                        number,
                        insertion,
                        atom.get_parent().resname.strip(),
                        atom.get_name().strip(),
                    )
                    out[key] = tuple(np.round(atom.coord.astype(float), 3).tolist())
    return out


def ours(found: Structure) -> dict[tuple, tuple[float, float, float]]:
    out = {}
    for i, r in enumerate(found.residue.tolist()):
        insertion = chr(found.residue_insertion[r]) if found.residue_insertion[r] else ""
        key = (
            found.residue_chain[r].decode(), int(found.residue_number[r]), insertion,
            found.residue_name[r].decode(), found.name[i].decode(),
        )  # fmt: skip
        out.setdefault(key, tuple(np.round(found.position[i], 3).tolist()))  # Biopython keeps the first, too
    return out


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_biopython_sees_the_same_atoms(shared: Path, part: int) -> None:
    compared = 0
    for path in structure_files(shared)[part::PARTS]:
        data = contents(path)
        try:
            kind = sniff(data, path.name)
            found = resolve_altlocs(read_structure(data, path.name))
        except StructureError:
            continue
        if kind == "bcif" or "/".join(path.parts[-2:]) in KNOWN:
            continue
        try:
            model = next(iter(by_biopython(data, kind)))
        except Exception:  # what Biopython refuses it cannot judge
            continue
        mine, theirs = ours(found), atoms_of(model)
        assert mine.keys() == theirs.keys(), (path.name, sorted(mine.keys() ^ theirs.keys())[:4])
        gaps = np.array([mine[k] for k in mine]) - np.array([theirs[k] for k in mine])
        assert np.abs(gaps).max() < 2e-3, path.name  # Biopython keeps single precision
        compared += 1
    assert compared >= 15


def test_biopython_agrees_on_alternates(shared: Path) -> None:
    for name in ("plip/1xdn.pdb", "gemmi/1orc.pdb", "gemmi/4hhh_frag.pdb", "pdb-tools/anisou_altloc.pdb"):
        data = (shared / "data/real/nasty" / name).read_bytes()
        found = resolve_altlocs(read_structure(data, name))
        assert ours(found) == atoms_of(next(iter(by_biopython(data, "pdb")))), name
