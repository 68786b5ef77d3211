"""Ingest on real files, in one process: CPU time against two yardsticks, and the share of each step.

The complexes are one for each protein of the shared pack, so that nothing is remembered from one to the
next; files are read and unpacked beforehand, and all contenders get the same bytes.

vs_biopython      times the time of :func:`straightforward`: Biopython and RDKit as one would first use them
vs_parse_floor    times the bare reading of both files by gemmi and RDKit, with nothing done to them: the
                  less the better; what the ligand's record asks of RDKit is printed beside it, as the part
                  that no code around RDKit can save
two_workers       speed of two processes over one, as their CPU time has it
cif_vs_atomworks  times as fast as atomworks' parse on mmCIF.gz: first assembly, bonds of the dictionary, and
                  of ours every ligand site as a complex; left out where atomworks is not installed

    HOLOSHARD_SHARED=... python benchmarks/ingest.py [--quick] [--json]
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import gzip
import io
import json
import math
import multiprocessing
import os
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import gemmi
import numpy as np
from Bio.PDB import NeighborSearch, PDBParser
from Bio.SeqUtils import seq1
from rdkit import Chem, rdBase
from rdkit.Chem import rdCIPLabeler, rdinchi, rdmolops
from rdkit.Chem.Scaffolds import MurckoScaffold

from holoshard.ingest import pipeline
from holoshard.ingest.chemistry import molecule
from holoshard.ingest.item import Item, Label, Locator, Rejection
from holoshard.ingest.pipeline import IngestOptions, Trace, clear_caches, process
from holoshard.ingest.read.archive import load
from holoshard.ingest.read.molblock import split_records
from holoshard.ingest.read.structure import read_structure
from holoshard.ingest.sites import find_sites

OPTIONS = IngestOptions()
QUICK = 40


def items(root: Path) -> list[Item]:
    """The first complex of each protein of the pack that comes as PDB, its ligand in a file of its own."""
    found: dict[str, Item] = {}
    with (root / "complexes.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            path = row["protein_path"]
            if path in found or path == row["ligand_path"] or ".cif" in path:
                continue
            label = Label(row["affinity_type"], row["relation"], row["value"], row["unit"])
            ligand = Locator(root / row["ligand_path"])
            found[path] = Item(
                row["id"], Locator(root / path), ligand, int(row["ligand_record"] or 0), labels=(label,)
            )
    return list(found.values())


def straightforward(protein: bytes, ligand: bytes) -> dict[str, Any]:
    """What one would write first: Biopython reads the protein and finds the residues near the ligand, RDKit
    reads the ligand, and the pocket as a PDB block; then, atom by atom and bond by bond, the columns of the
    record for both, R and S of the ligand by the full rules, its SMILES, InChIKey and scaffold, and the
    sequences of the chains.

    It leaves out what a record has beyond that: alternate locations resolved, bonds to residues outside the
    pocket, charges and hydrogens of the whole protein's chemistry, repairs, header, links, label, checks.
    """
    mol = Chem.MolFromMolBlock(ligand.decode("latin-1"))
    rdCIPLabeler.AssignCIPLabels(mol)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = next(iter(PDBParser(QUIET=True).get_structure("x", io.StringIO(protein.decode("latin-1")))))
    places = mol.GetConformer().GetPositions()
    search = NeighborSearch([a for a in model.get_atoms() if a.element not in ("H", "D")])
    near = {residue for xyz in places for residue in search.search(xyz, OPTIONS.pocket, "R")}
    kept = [r for r in model.get_residues() if r in near and r.resname not in ("HOH", "WAT", "DOD")]
    atoms = [(k, a) for k, residue in enumerate(kept) for a in residue if a.element not in ("H", "D")]
    block = io.StringIO()
    for k, atom in atoms:
        x, y, z = atom.coord
        block.write(f"ATOM  {1:5d} {atom.fullname:<4s} {kept[k].resname:>3s} {'A'}{k % 9999:4d}    "
                    f"{x:8.3f}{y:8.3f}{z:8.3f}  1.00  0.00          {atom.element:>2s}\n")  # fmt: skip
    pocket = Chem.MolFromPDBBlock(block.getvalue(), sanitize=False)
    Chem.SanitizeMol(pocket, catchErrors=True)
    Chem.AssignStereochemistryFrom3D(pocket)
    features = [
        (a.GetAtomicNum(), a.GetFormalCharge(), str(a.GetHybridization()), a.GetDegree(), a.GetTotalNumHs(),
         a.GetIsAromatic(), a.IsInRing(), a.GetProp("_CIPCode") if a.HasProp("_CIPCode") else "")
        for m in (mol, pocket) for a in m.GetAtoms()
    ]  # fmt: skip
    names = [
        (a.name, kept[k].resname, kept[k].get_parent().id, *kept[k].id[1:], a.name in ("N", "CA", "C", "O"),
         a.get_bfactor(), a.get_occupancy())
        for k, a in atoms
    ]  # fmt: skip
    bonds = [
        (b.GetBeginAtomIdx(), b.GetEndAtomIdx(), str(b.GetBondType()), b.GetIsConjugated(), b.IsInRing(),
         str(b.GetStereo()))
        for m in (mol, pocket) for b in m.GetBonds()
    ]  # fmt: skip
    sequences = {chain.id: "".join(seq1(r.resname) for r in chain if r.id[0] == " ") for chain in model}
    return {
        "position": np.concatenate([places, [a.coord for _, a in atoms]]) - places.mean(axis=0),
        "features": features, "names": names, "bonds": bonds, "sequences": sequences,
        "smiles": Chem.MolToSmiles(mol), "key": Chem.MolToInchiKey(mol),
        "scaffold": MurckoScaffold.MurckoScaffoldSmiles(mol=mol),
    }  # fmt: skip


def floor(protein: bytes, ligand: bytes) -> None:
    """Both files read and nothing done with them."""
    gemmi.read_pdb_string(protein)
    Chem.MolFromMolBlock(ligand.decode("latin-1"))


def perception(ligand: bytes) -> Counter[str]:
    """CPU seconds of what the record of a ligand asks of RDKit at the least, call by call; nothing is copied
    out of its objects.
    """
    seconds: Counter[str] = Counter()
    last = time.process_time()

    def done(call: str) -> None:
        nonlocal last
        now = time.process_time()
        seconds[call] += now - last
        last = now

    mol = Chem.MolFromMolBlock(ligand.decode("latin-1"))
    done("read")
    Chem.AssignStereochemistry(mol, True, True, True)
    done("stereo")
    smiles = Chem.MolToSmiles(mol)
    done("SMILES")
    mol.RemoveAllConformers()
    if "@" in smiles or "/" in smiles or "\\" in smiles:
        with contextlib.suppress(RuntimeError):  # cages, beyond the effort that we make, too
            rdCIPLabeler.AssignCIPLabels(mol, maxRecursiveIterations=molecule.CIP_EFFORT)
    done("CIP")
    rdinchi.MolToInchiKey(mol, "")
    done("InChIKey")
    Chem.MolToSmiles(rdmolops.MurckoDecompose(mol))
    done("scaffold")
    return seconds


def table(cpu: Counter[str], steps: Counter[str], ligands: list[Counter[str]]) -> list[str]:
    """Where the time goes, and what no code around RDKit can save; milliseconds a complex."""
    n, calls, alone = len(ligands), total(ligands), cpu["rdkit alone"]
    dearest = sorted((ligand["CIP"] for ligand in ligands), reverse=True)[: max(n // 50, 1)]

    def row(name: str, seconds: float) -> str:
        return f"    {name:<44}{seconds / n * 1000:7.3f} {seconds / cpu['holoshard']:6.0%}"

    return [
        "  share of each step, ms a complex, the clock's own time in it",
        *(row(k, v) for k, v in steps.most_common()),
        "  calls of RDKit that the ligand's record cannot do without",
        *(row(k, v) for k, v in calls.most_common()),
        row("all of them", alone),
        row(f"CIP of the {len(dearest)} dearest ligands", sum(dearest)),
        "  reading the protein",
        row("gemmi's bare reading", cpu["floor"] - calls["read"]),
        row("our columns, whole, checked", cpu["columns"]),
        "  left beside both: receptor, pocket, features, columns of the ligand, record, label",
        row("of 1.8 times the floor", 1.8 * cpu["floor"] - alone - cpu["columns"]),
        row("of a twentieth of Biopython and RDKit", cpu["biopython"] / 20 - alone - cpu["columns"]),
        row("taken", cpu["holoshard"] - alone - cpu["columns"]),
    ]


class Contents:
    """The bytes of the items, in memory: ``load`` for the pipeline without the disk. Of a ligand file no more
    than the item's own record, so that nobody has to look for it.
    """

    def __init__(self, chosen: list[Item]) -> None:
        self.data: dict[Locator, bytes] = {}
        self.pairs, self.items = [], [replace(item, record=0) for item in chosen]
        for item in chosen:
            assert item.ligand is not None
            protein, ligand = load(item.structure), load(item.ligand)
            start, stop = split_records(ligand)[item.record]
            self.pairs.append((protein, ligand[start:stop]))
            self.data[item.structure], self.data[item.ligand] = self.pairs[-1]

    def load(self, locator: Locator) -> bytes:
        return self.data[locator]


def ours(item: Item, trace: Trace | None = None) -> None:
    clear_caches()
    molecule.forget()  # InChIKeys and scaffolds of compounds met before
    found = process(item, OPTIONS, trace)
    if isinstance(found, Rejection):
        raise SystemExit(f"{item.id}: {found.reason}: {found.message}")


def least(rounds: int, contenders: dict[str, list[Callable[[], object]]]) -> Counter[str]:
    """CPU seconds of all jobs of each contender, of each job the least of some rounds. A contender does one
    job after another, as in a real run; contenders take turns, so that noise strikes all alike.
    """
    best = {name: [math.inf] * len(jobs) for name, jobs in contenders.items()}
    for _ in range(rounds):
        for name, jobs in contenders.items():
            for k, job in enumerate(jobs):
                start = time.process_time()
                job()
                best[name][k] = min(best[name][k], time.process_time() - start)
    return Counter({name: sum(seconds) for name, seconds in best.items()})


def traced(item: Item) -> Counter[str]:
    trace = Trace()
    ours(item, trace)
    return Counter(trace.seconds)


def best_of(rounds: int, jobs: list[Callable[[], Counter[str]]]) -> list[Counter[str]]:
    """Parts of each job, of each part the least of some rounds."""
    best = [Counter[str]() for _ in jobs]
    for _ in range(rounds):
        for k, job in enumerate(jobs):
            found = job()
            best[k] = Counter({part: min(s, best[k].get(part, s)) for part, s in found.items()})
    return best


def total(jobs: list[Counter[str]]) -> Counter[str]:
    """Sums of the parts over all jobs."""
    return sum(jobs, Counter[str]())


def work(chosen: list[Item]) -> float:
    """CPU seconds of all items, one after another."""
    start = time.process_time()
    for item in chosen:
        ours(item)
    return time.process_time() - start


def two_workers(chosen: list[Item]) -> float:
    """Time of one process over that of the slower of two at once, each after its own warm-up, the least of
    three; of the CPU, so that it does not matter who else is at work.
    """
    context = multiprocessing.get_context("fork")
    seconds = {1: math.inf, 2: math.inf}
    for n in (1, 2) * 3:
        pools = [context.Pool(1) for _ in range(n)]
        shares = [chosen[k::n] for k in range(n)]
        for part in (slice(8), slice(None)):
            running = [p.apply_async(work, (share[part],)) for p, share in zip(pools, shares, strict=True)]
            spent = max(one.get() for one in running)
        seconds[n] = min(seconds[n], spent)
        for pool in pools:
            pool.terminate()
    return seconds[1] / seconds[2]


def cif_vs_atomworks(root: Path, rounds: int) -> float | None:
    """CPU time of atomworks over ours for the deposited mmCIF files of the pack, packed with gzip."""
    try:
        from atomworks.io import parse
    except Exception as error:  # it may be there and lack something of its own
        print(f"cif_vs_atomworks left out: {type(error).__name__}: {error}".partition("\n")[0])
        return None
    jobs: dict[str, list[Callable[[], object]]] = {"holoshard": [], "atomworks": []}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for source in sorted((root / "layouts/rcsb_same_entry").glob("*.cif")):
            path = Path(folder) / f"{source.name}.gz"
            path.write_bytes(gzip.compress(source.read_bytes()))
            item = Item(source.stem, Locator(path), assembly="1", sites=True)
            jobs["holoshard"].append(partial(sites, item))
            jobs["atomworks"].append(partial(parse, path, build_assembly=["1"]))
        least(1, jobs)  # either makes its templates once
        total = least(rounds, jobs)
    return total["atomworks"] / total["holoshard"]


def sites(item: Item) -> None:
    """Every ligand of a structure as a complex."""
    clear_caches()
    molecule.forget()
    found = find_sites(item, OPTIONS)
    for one in [] if isinstance(found, Rejection) else found:
        process(one, OPTIONS)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} complexes, under a minute")
    parser.add_argument("--json", action="store_true", help="a last line of JSON")
    parser.add_argument(
        "--shared", type=Path, default=os.environ.get("HOLOSHARD_SHARED"), help="the shared pack"
    )
    given = parser.parse_args()
    if given.shared is None:
        parser.error("set HOLOSHARD_SHARED or --shared to the folder of the shared data")
    rdBase.DisableLog("rdApp.*")
    chosen = items(Path(given.shared) / "data/real")
    if given.quick:
        chosen = chosen[:: max(len(chosen) // QUICK, 1)][:QUICK]
    peer = cif_vs_atomworks(Path(given.shared) / "data/real", 3)
    contents = Contents(chosen)
    chosen = contents.items
    pipeline.load = contents.load  # type: ignore[assignment]
    work(chosen)  # the dictionary and the templates are made once a process
    rounds = 3 if given.quick else 5
    n = len(chosen)
    cpu = least(
        rounds,
        {
            "holoshard": [partial(ours, item) for item in chosen],
            "floor": [partial(floor, *pair) for pair in contents.pairs],
            "rdkit alone": [partial(perception, ligand) for _, ligand in contents.pairs],
            "columns": [partial(read_structure, protein, "protein.pdb") for protein, _ in contents.pairs],
            "biopython": [partial(straightforward, *pair) for pair in contents.pairs],
        },
    )
    steps = total(best_of(rounds, [partial(traced, item) for item in chosen]))
    calls = best_of(rounds, [partial(perception, ligand) for _, ligand in contents.pairs])
    ratios = {
        "vs_biopython": cpu["biopython"] / cpu["holoshard"],
        "vs_parse_floor": cpu["holoshard"] / cpu["floor"],
        "two_workers": two_workers(chosen),
        **({} if peer is None else {"cif_vs_atomworks": peer}),
    }
    size = np.mean([len(p) for p, _ in contents.pairs]) / 1000
    print(f"{n} complexes, proteins of {size:.0f} kB, one process")
    for name, seconds in cpu.items():
        print(f"  {name:<12}{seconds / n * 1000:8.2f} ms a complex {n / seconds:8.0f} complexes/s")
    print("\n".join(table(cpu, steps, calls)))
    print("  " + ", ".join(f"{k} {v:.2f}" for k, v in ratios.items()))
    if given.json:
        named = {k: round(v, 3) for k, v in ratios.items()}
        share = {k: round(v / sum(steps.values()), 4) for k, v in steps.items()}
        print(json.dumps({**named, "complexes_per_second": round(n / cpu["holoshard"], 1), "steps": share}))


if __name__ == "__main__":
    main()
