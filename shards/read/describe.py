"""Data sets and complexes in words, for people at a shell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..complex import KINDS, RELATIONS, RESIDUE_TYPES, Complex, Flag, decode_names
from ..errors import UsageError
from .dataset import Dataset

SYMBOLS: Final = {
    1: "H", 5: "B", 6: "C", 7: "N", 8: "O", 9: "F", 11: "Na", 12: "Mg", 14: "Si", 15: "P", 16: "S",
    17: "Cl", 19: "K", 20: "Ca", 25: "Mn", 26: "Fe", 27: "Co", 28: "Ni", 29: "Cu", 30: "Zn", 34: "Se",
    35: "Br", 53: "I",
}  # fmt: skip
TOLD: Final = ("source", "smiles", "ligand", "scaffold", "repairs", "method", "columns", "files")


def summarise(dataset: Dataset) -> dict[str, Any]:
    """Return counts and statistics of a data set, from its index, as plain data."""
    manifest, n = dataset.manifest, len(dataset)
    pk = dataset.column("pk").astype(np.float64)
    flags = dataset.column("flags")
    n_bytes = sum(s.n_bytes for s in manifest.shards)
    return {
        "n_complexes": n,
        "splits": {name: _labels(pk[dataset.indices(name)]) for name in dataset.splits},
        "container": manifest.container,
        "n_shards": len(manifest.shards),
        "n_blocks": dataset.reader.n_blocks,
        "block_size": manifest.block_size,
        "n_bytes": n_bytes,
        "bytes_per_complex": round(n_bytes / n, 1) if n else None,
        "fingerprint": manifest.fingerprint,
        "sizes": {
            name: _quartiles(dataset.column(name))
            for name in ("n_atoms", "n_ligand_atoms", "n_bonds", "n_residues")
        },
        "pk": {**_labels(pk), "range": [_number(np.nanmin(pk)), _number(np.nanmax(pk))]}
        if np.isfinite(pk).any()
        else _labels(pk),
        "relations": _counts(dataset.column("pk_relation"), RELATIONS),
        "kinds": _counts(dataset.column("pk_kind"), KINDS),
        "flags": {f.name: int(c) for f in Flag if f.name and (c := np.count_nonzero(flags & f))},
        "position_scale": manifest.position_scale,
        "positions": {k: v["position"] for k, v in manifest.statistics.items() if "position" in v},
        "extra": sorted(k for k, f in manifest.fields.items() if not f.doc),
        "making": dict(manifest.making),
    }


def info_text(name: str, summary: Mapping[str, Any]) -> str:
    """Return the summary as a page of text."""
    s = summary
    lines = [
        f"{name}: {s['n_complexes']} complexes in {s['n_shards']} {s['container']} shards, "
        f"{s['n_bytes'] / 1e6:.1f} MB ({s['bytes_per_complex']} bytes a complex)",
        f"blocks: {s['n_blocks']} of {s['block_size']} complexes; fingerprint {s['fingerprint'][:16]}",
        "",
        "split      complexes  labelled  pK mean  pK std",
    ]
    for split, labels in [*s["splits"].items(), ("all", s["pk"])]:
        mean, std = (f"{labels[k]:.2f}" if labels[k] is not None else "-" for k in ("mean", "std"))
        lines.append(f"{split:<10} {labels['n']:>9}  {labels['labelled']:>8}  {mean:>7}  {std:>6}")
    lines += ["", "sizes              least  quarter  median  three quarters   most"]
    for what, q in s["sizes"].items():
        if q:
            cells = f"{q[0]:>7}  {q[1]:>7}  {q[2]:>6}  {q[3]:>14}  {q[4]:>5}"
            lines.append(f"{what.removeprefix('n_').replace('_', ' '):<17}{cells}")
    lines += ["", *_coordinates(s)]
    for key, title in (("kinds", "labels"), ("relations", "relations"), ("flags", "flags")):
        if s[key]:
            lines.append(f"{title}: " + ", ".join(f"{k} {v}" for k, v in s[key].items()))
    if s["extra"]:
        lines.append(f"columns of your own: {', '.join(s['extra'])}")
    lines += _made(s["making"])
    return "\n".join(lines)


def _coordinates(summary: Mapping[str, Any]) -> list[str]:
    """Mean, spread and reach along x, y and z."""
    lines = []
    for split, found in summary["positions"].items():
        cells = (f"{k} {' '.join(f'{v:.2f}' for v in found[k])}" for k in ("mean", "std", "max"))
        lines.append(f"{split} xyz in angstrom from the centre: {', '.join(cells)}")
    beyond = summary["flags"].get("OUT_OF_RANGE", 0)
    said = (
        f"scale: {summary['position_scale']:g} angstrom; {beyond} complexes leave [-1, 1] when divided by it"
    )
    return [*lines, said, ""]


def _made(making: Mapping[str, Any]) -> list[str]:
    """How the data set came about."""
    if "split" not in making:
        return []
    how = making["split"]
    by = how.get("groups_by") or f"column {how.get('column')}"
    lines = [f"split: {how['method']}, by {by}, {how['n_groups']} groups, seed {how['seed']}"]
    dropped = {"came twice": "same_id", "had the content of another": "same_content",
               "had the id of another": "id_conflicts"}  # fmt: skip
    words = [f"{making[key]} {what}" for what, key in dropped.items() if making.get(key)]
    if how.get("left_out"):
        words.append(f"{how['left_out']} in no split")
    if "test_list" in how:
        lines.append(f"test list {how['test_list']['name']}: {how['test_list']['found']} found here")
    for more in making.get("appended", ()):
        lines.append(f"generation {more['generation']}: {more['n_complexes']} complexes appended")
    return lines + ([f"of {making['seen']} complexes seen: {', '.join(words)}"] if words else [])


def describe_complex(dataset: Dataset, which: str) -> tuple[str, dict[str, Any]]:
    """Find a complex by id or row and say what it is, as text and as plain data."""
    row = find(dataset, which)
    c = dataset[row]
    split = str(dataset.column("split")[row])
    facts = {"row": row, "split": split, **facts_of(c)}
    return _text_of(c, facts), facts


def find(dataset: Dataset, which: str) -> int:
    """Return the row of an id, or of a row given as text; UsageError if there is none."""
    ids = dataset.ids()
    if which in ids:
        return ids.index(which)
    if which.lstrip("-").isdigit():
        row = int(which)
        if -len(ids) <= row < len(ids):
            return row % len(ids)
        raise UsageError(f"row {which} of a data set of {len(ids)} complexes; rows are 0 to {len(ids) - 1}")
    near = [i for i in ids if which.lower() in i.lower()][:3]
    hint = f"; near it: {', '.join(near)}" if near else f"; the first is {ids[0]!r}" if ids else ""
    raise UsageError(f"no complex {which!r} among {len(ids)}{hint}")


def facts_of(c: Complex) -> dict[str, Any]:
    """Return what is worth saying of a complex, as plain data."""
    residues = Counter(RESIDUE_TYPES[t] for t in c.residue_type.tolist() if RESIDUE_TYPES[t] != "ligand")
    ligand = c.position[: c.n_ligand_atoms]
    pocket = c.position[c.n_ligand_atoms :]
    nearest = None
    if len(ligand) and len(pocket):
        nearest = _number(np.sqrt(((ligand[:, None] - pocket[None]) ** 2).sum(-1).min()))
    return {
        "id": c.id,
        "pk": _number(c.affinity.pk),
        "relation": c.affinity.relation,
        "kind": c.affinity.kind,
        "measurements": c.affinity.count,
        "label": c.affinity.text,
        "n_atoms": c.n_atoms,
        "n_ligand_atoms": c.n_ligand_atoms,
        "n_bonds": len(c.bond_order),
        "n_residues": len(c.residue_type),
        "formula": formula(c.element[: c.n_ligand_atoms], c.hydrogens[: c.n_ligand_atoms]),
        "residues": dict(residues.most_common()),
        "chains": sorted(set(decode_names(c.residue_chain)) - {""}),
        "nearest_contact": nearest,
        "pocket_radius": _number(c.pocket_radius),
        "resolution": _number(c.resolution),
        "deposited": c.deposited or None,
        "centre": [round(float(x), 3) for x in c.centre],
        "flags": [f.name for f in Flag if f in c.flags],
        "extra": sorted(c.extra),
        **{k: c.text[k] for k in TOLD if c.text.get(k)},
    }


def formula(elements: NDArray[np.uint8], hydrogens: NDArray[np.uint8]) -> str:
    """Hill formula of some atoms with their bonded hydrogens; an element without a symbol here is E<n>."""
    found = Counter(SYMBOLS.get(e, f"E{e}") for e in elements.tolist())
    found["H"] += int(hydrogens.sum())
    first = ["C", "H"] if found["C"] else []
    order = first + sorted(e for e in found if e not in first)
    return "".join(f"{e}{found[e] if found[e] > 1 else ''}" for e in order if found[e])


def _text_of(c: Complex, f: Mapping[str, Any]) -> str:
    label = f"no absolute label ({f['label']})" if f["label"] else "no label"
    if f["pk"] is not None:
        sign = "" if f["relation"] == "=" else f"{f['relation']} "
        kind = "" if f["label"].startswith(f["kind"]) else f"{f['kind']} "
        label = f"pK {sign}{f['pk']:.2f}, from {kind}{f['label']}".rstrip()
        if f["measurements"] > 1:
            label += f", {f['measurements']} measurements within {c.affinity.spread:.2f}"
    residues = ", ".join(f"{n} {name}" for name, n in list(f["residues"].items())[:6])
    more = len(f["residues"]) - 6
    lines = [
        f"{f['id']} (row {f['row']}, {f['split']})",
        f"label     {label}",
        f"ligand    {f.get('ligand') or 'unnamed'}: {f['n_ligand_atoms']} heavy atoms, {f['formula']}",
        f"          {f['smiles']}" if f.get("smiles") else "",
        f"pocket    {f['n_atoms'] - f['n_ligand_atoms']} atoms of {sum(f['residues'].values())} residues "
        f"within {f['pocket_radius']:g} angstrom, chains {' '.join(f['chains']) or '-'}",
        f"          {residues}{f' and {more} other kinds' if more > 0 else ''}",
        f"          nearest to the ligand {f['nearest_contact']:.2f} angstrom"
        if f["nearest_contact"]
        else "",
        f"bonds     {f['n_bonds']}, of ligand and pocket",
        f"structure {f.get('method', 'method unknown')}, resolution {f['resolution'] or 'unknown'}, "
        f"deposited {f['deposited'] or 'unknown'}",
        f"source    {f.get('source', 'unknown')}"
        + "".join(f"\n          {name}" for name, _ in f.get("files", [])),
        f"flags     {', '.join(f['flags'])}" if f["flags"] else "",
        f"repairs   {', '.join(f['repairs'])}" if f.get("repairs") else "",
        "columns   " + ", ".join(f"{k}={v}" for k, v in f["columns"].items()) if f.get("columns") else "",
    ]
    return "\n".join(line for line in lines if line)


def _labels(pk: NDArray[np.float64]) -> dict[str, Any]:
    known = pk[np.isfinite(pk)]
    mean, std = (_number(known.mean()), _number(known.std())) if len(known) else (None, None)
    return {"n": len(pk), "labelled": len(known), "mean": mean, "std": std}


def _quartiles(values: NDArray[Any]) -> list[int]:
    return [int(q) for q in np.percentile(values, [0, 25, 50, 75, 100])] if len(values) else []


def _counts(codes: NDArray[Any], names: tuple[str, ...]) -> dict[str, int]:
    found = Counter(names[c] if c < len(names) else f"code {c}" for c in codes.tolist())
    return dict(found.most_common())


def _number(value: Any) -> float | None:
    return round(float(value), 4) if np.isfinite(value) else None
