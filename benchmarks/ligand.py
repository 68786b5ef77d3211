"""Reading ligands: CPU time a ligand, beside RDKit's bare read and a straightforward featuriser, same bytes.

    python benchmarks/ligand.py --data DIR [--quick] [--json]

DIR holds ``complexes.csv`` with columns ligand_path and ligand_record, as the table layout has them; without
it the ligands of the embedded sample are read. Every compound is read once, so nothing is remembered.
"""

from __future__ import annotations

import argparse
import csv
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rdkit import Chem, rdBase
from rdkit.Chem.inchi import MolToInchiKey
from rdkit.Chem.Scaffolds import MurckoScaffold

from holoshard.ingest.chemistry import molecule
from holoshard.ingest.read import ligand as reader
from holoshard.ingest.read.molblock import read_molblock

QUICK = 150


def records(data: Path, limit: int) -> list[tuple[bytes, int]]:
    """(bytes of the file, record) of each compound, the first pose of it."""
    found: dict[str, tuple[bytes, int]] = {}
    files: dict[str, bytes] = {}
    with (data / "complexes.csv").open() as table:
        for row in csv.DictReader(table):
            path = row["ligand_path"]
            if not path.endswith(".sdf"):
                continue
            content = files.setdefault(path, (data / path).read_bytes())
            found.setdefault(row.get("smiles") or row["id"], (content, int(row["ligand_record"] or 0)))
    everything = list(found.values())
    return everything[:: max(1, len(everything) // limit)] if limit else everything


def sample() -> list[tuple[bytes, int]]:
    """Ligands of the embedded sample."""
    from holoshard.ingest.sample import write_sample

    with tempfile.TemporaryDirectory() as folder:
        write_sample(Path(folder), n=64)
        return [(path.read_bytes(), 0) for path in sorted(Path(folder).rglob("*.sdf"))]


def straightforward(data: bytes, record: int) -> dict[str, Any]:
    """The same columns as one would first write them."""
    supplier = Chem.SDMolSupplier()
    supplier.SetData(data.decode("latin-1"))
    mol = supplier[record]
    Chem.AssignStereochemistryFrom3D(mol)
    return {
        "position": [list(mol.GetConformer().GetAtomPosition(i)) for i in range(mol.GetNumAtoms())],
        "atoms": [
            (a.GetAtomicNum(), a.GetFormalCharge(), str(a.GetHybridization()), a.GetTotalNumHs(),
             a.GetIsAromatic(), a.IsInRing(), sum(n.GetAtomicNum() > 1 for n in a.GetNeighbors()),
             a.GetPropsAsDict().get("_CIPCode"))
            for a in mol.GetAtoms()
        ],
        "bonds": [
            (b.GetBeginAtomIdx(), b.GetEndAtomIdx(), str(b.GetBondType()), b.GetIsConjugated(), b.IsInRing(),
             str(b.GetStereo()))
            for b in mol.GetBonds()
        ],
        "smiles": Chem.MolToSmiles(mol),
        "inchikey": MolToInchiKey(mol),
        "scaffold": Chem.MolToSmiles(MurckoScaffold.GetScaffoldForMol(mol)),
    }  # fmt: skip


def timed(call: Callable[..., Any], inputs: list[Any], repeats: int) -> float:
    """Best CPU milliseconds an input."""
    call(*inputs[0])  # loads what a process loads once
    best = float("inf")
    for _ in range(repeats):
        molecule.forget()
        start = time.process_time()
        for item in inputs:
            call(*item)
        best = min(best, time.process_time() - start)
    return 1e3 * best / len(inputs)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder with complexes.csv; the embedded sample without it")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} ligands, one repeat")
    parser.add_argument("--json", action="store_true", help="a last line for machines")
    options = parser.parse_args()
    inputs = records(options.data, QUICK if options.quick else 0) if options.data else sample()
    repeats = 1 if options.quick else 3
    with rdBase.BlockLogs():
        ours = timed(lambda data, record: reader.read_ligand(data, "ligand", record), inputs, repeats)
        blocks = [(read_molblock(_record(data, record)),) for data, record in inputs]
        bare = timed(lambda block: Chem.MolFromMolBlock(block.text), blocks, repeats)
        mols = [(Chem.MolFromMolBlock(block.text),) for (block,) in blocks]
        plain = [(Chem.Mol(mol),) for (mol,) in mols]
        for (mol,) in plain:
            mol.RemoveAllConformers()
        steps = {
            "records": timed(_record, inputs, repeats),
            "sanitiser": timed(read_molblock, [(_record(d, r),) for d, r in inputs], repeats),
            "rdkit read": bare,
            "smiles": timed(Chem.MolToSmiles, mols, repeats),
            "inchikey": timed(molecule.inchikey, plain, repeats),
            "scaffold": timed(molecule.scaffold, mols, repeats),
        }
        naive = timed(straightforward, inputs, repeats)
    print(f"{len(inputs)} ligands, CPU ms each")
    print(f"ours {ours:.3f}, bare RDKit read {bare:.3f}, straightforward {naive:.3f}; ours by steps:")
    for name, spent in steps.items():
        print(f"  {name:12} {spent:.3f}  {spent / ours:5.0%}")
    print(f"  {'columns, CIP':12} {ours - sum(steps.values()):.3f}  {1 - sum(steps.values()) / ours:5.0%}")
    if options.json:
        result = {
            "ligands": len(inputs),
            "ms": ours,
            "vs_rdkit_read": ours / bare,
            "vs_straightforward": naive / ours,
        }
        print(json.dumps(result))


def _record(data: bytes, record: int) -> bytes:
    start, end = reader.record_spans(data)[record]
    return data[start:end]


if __name__ == "__main__":
    main()
