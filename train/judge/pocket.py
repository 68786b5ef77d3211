"""A few complexes to turn by hand: sticks on a canvas, drawn by the short script below, without a network."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from ...shards.complex import Complex
from ...shards.errors import HoloshardError
from ...shards.read.dataset import Dataset
from . import page
from .metrics import exact
from .predictions import PredictionTable

N_WORST: Final = 3
MAX_ATOMS: Final = 1_500  # the nearest to the ligand; more would neither be seen nor keep the page small

SCRIPT: Final = """
(() => {
  const all = JSON.parse(document.getElementById("pockets").textContent);
  const canvas = document.getElementById("pocket"), pen = canvas.getContext("2d");
  const select = document.getElementById("pocket-choice");
  const ELEMENT = {7: "#4a7fe0", 8: "#d9453d", 9: "#4fae4a", 15: "#d98324", 16: "#c9a400", 17: "#4fae4a",
                   35: "#9c4a32", 53: "#7d3ca0"};
  let shown = 0, turn = [1, 0, 0, 0, 1, 0, 0, 0, 1], zoom = 1;
  const rotate = (dx, dy) => {
    const a = Math.cos(dx), b = Math.sin(dx), c = Math.cos(dy), d = Math.sin(dy);
    const by = [a, 0, b, d * b, c, -d * a, -c * b, d, c * a], old = turn;
    turn = by.map((_, i) => { const r = i - i % 3, k = i % 3;
      return by[r] * old[k] + by[r + 1] * old[k + 3] + by[r + 2] * old[k + 6]; });
  };
  const draw = () => {
    const {xyz, element, bonds, ligand} = all[shown], n = element.length;
    const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
    canvas.width = width * ratio; canvas.height = height * ratio;
    pen.setTransform(ratio, 0, 0, ratio, width / 2 * ratio, height / 2 * ratio);
    pen.clearRect(-width / 2, -height / 2, width, height);
    const style = getComputedStyle(document.body), ink = style.color, quiet = "#8794a0";
    let reach = 1;
    for (let i = 0; i < n; i++) reach = Math.max(reach, Math.hypot(xyz[3*i], xyz[3*i+1], xyz[3*i+2]));
    const scale = zoom * Math.min(width, height) / 1.75 / reach, at = [];
    for (let i = 0; i < n; i++) {
      const [x, y, z] = [xyz[3*i], xyz[3*i+1], xyz[3*i+2]], row = r => turn[r]*x + turn[r+1]*y + turn[r+2]*z;
      at.push([row(0) * scale, -row(3) * scale, row(6)]);
    }
    const sticks = [];
    for (let b = 0; b < bonds.length; b += 2) {
      const [i, j] = [bonds[b], bonds[b + 1]];
      const [p, q] = [at[i], at[j]], m = [(p[0]+q[0])/2, (p[1]+q[1])/2];
      sticks.push([p, m, i], [q, m, j]);
    }
    sticks.sort((s, t) => s[0][2] - t[0][2]);
    pen.lineCap = "round";
    for (const [p, m, i] of sticks) {
      const own = i < ligand, near = Math.min(1, Math.max(0, (p[2] + reach) / 2 / reach));
      pen.globalAlpha = own ? 1 : 0.15 + 0.75 * near;
      pen.strokeStyle = ELEMENT[element[i]] || (own ? ink : quiet);
      pen.lineWidth = (own ? 0.32 : 0.11) * scale;
      pen.beginPath(); pen.moveTo(p[0], p[1]); pen.lineTo(m[0], m[1]); pen.stroke();
    }
    pen.globalAlpha = 1;
  };
  let held = null;
  canvas.addEventListener("pointerdown", e => { held = [e.clientX, e.clientY];
    canvas.setPointerCapture(e.pointerId); });
  canvas.addEventListener("pointermove", e => { if (!held) return;
    rotate((e.clientX - held[0]) / 120, (e.clientY - held[1]) / 120);
    held = [e.clientX, e.clientY]; draw(); });
  canvas.addEventListener("pointerup", () => { held = null; });
  canvas.addEventListener("wheel", e => { e.preventDefault();
    zoom = Math.min(8, Math.max(0.5, zoom * Math.exp(-e.deltaY / 500))); draw(); }, {passive: false});
  canvas.addEventListener("keydown", e => {
    const step = {ArrowLeft: [-.15, 0], ArrowRight: [.15, 0], ArrowUp: [0, -.15], ArrowDown: [0, .15]}[e.key];
    if (step) { e.preventDefault(); rotate(...step); draw(); } });
  select.addEventListener("change", () => { shown = select.selectedIndex; draw(); });
  window.addEventListener("resize", draw);
  rotate(0.5, 0.35); draw();
})();
"""


def pockets(dataset: Dataset | None, predictions: Mapping[str, PredictionTable]) -> list[str]:
    """The worst and the best predicted complexes of the first split, as parts of a page."""
    if dataset is None or not predictions:
        return []
    table = next(iter(predictions.values()))
    row = {name: i for i, name in enumerate(dataset.ids())}
    chosen = [i for i in _chosen(table) if table.id[i] in row]
    try:
        scenes = [scene(dataset[row[table.id[i]]]) for i in chosen]
    except (HoloshardError, OSError):  # the shards are gone or damaged: the rest of the page is of use
        return []
    if not scenes:
        return []
    titles = [
        f"{table.id[i]}: measured {table.pk[i]:.2f}, predicted {table.predicted[i]:.2f}" for i in chosen
    ]
    options = "".join(f"<option>{page.text(title)}</option>" for title in titles)
    data = json.dumps(scenes, separators=(",", ":")).replace("<", "\\u003c")
    return [
        f'<p><select id="pocket-choice" aria-label="complex">{options}</select></p>',
        '<canvas id="pocket" tabindex="0" style="width:46rem;height:26rem" '
        'aria-label="the ligand in its pocket"></canvas>',
        page.paragraph("Thick: the ligand. Drag or use the arrow keys to turn, the wheel to come nearer. The "
                       "complexes predicted worst come first, the best one last.", "quiet"),
        f'<script type="application/json" id="pockets">{data}</script><script>{SCRIPT}</script>',
    ]  # fmt: skip


def _chosen(table: PredictionTable) -> list[int]:
    measured = np.flatnonzero(exact(table.pk, table.pk_relation))
    error = np.abs(table.predicted - table.pk)[measured]
    order = measured[np.argsort(-error, kind="stable")]
    return [int(i) for i in dict.fromkeys([*order[:N_WORST], *order[-1:]])]


def scene(holo: Complex) -> dict[str, Any]:
    """What the script draws: positions to 0.01 angstrom, elements, bonds as pairs of atoms."""
    position = holo.position.astype(np.float64)
    ligand = position[: holo.n_ligand_atoms]
    centre = ligand.mean(axis=0) if len(ligand) else np.zeros(3)
    away = np.linalg.norm(position - centre, axis=1)
    away[: holo.n_ligand_atoms] = -1  # the ligand stays whole and first
    kept = np.sort(np.argsort(away, kind="stable")[:MAX_ATOMS])
    place = np.full(holo.n_atoms, -1)
    place[kept] = np.arange(len(kept))
    bonds = place[holo.bond_atoms.astype(np.int64).reshape(-1, 2)]
    return {
        "xyz": [round(float(v), 2) for v in (position[kept] - centre).ravel()],
        "element": holo.element[kept].tolist(),
        "bonds": bonds[(bonds >= 0).all(axis=1)].ravel().tolist(),
        "ligand": min(holo.n_ligand_atoms, MAX_ATOMS),
    }
