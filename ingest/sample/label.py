"""A pK as sources write affinities: kinds, units and relations mixed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

# RT ln(10) at 298.15 K with R = 8.314462618 J/(mol K) (CODATA 2018); 1 kcal = 4.184 kJ.
RT_LN10_KJ: Final = 8.314462618e-3 * 298.15 * math.log(10.0)
DELTA_G_UNITS: Final = {"kJ/mol": RT_LN10_KJ, "kcal/mol": RT_LN10_KJ / 4.184}
CONCENTRATIONS: Final = {"nM": 1e-9, "uM": 1e-6, "mM": 1e-3, "M": 1.0}

# (affinity_type, unit, share)
STYLES: Final = (
    ("Kd", "nM", 0.16), ("Kd", "uM", 0.12), ("Ki", "nM", 0.14), ("Ki", "uM", 0.06), ("Ki", "M", 0.03),
    ("IC50", "nM", 0.12), ("IC50", "uM", 0.10), ("IC50", "mM", 0.02), ("EC50", "nM", 0.03),
    ("EC50", "uM", 0.02), ("dG", "kcal/mol", 0.08), ("dG", "kJ/mol", 0.05), ("pIC50", "", 0.04),
    ("pKd", "", 0.03),
)  # fmt: skip
WEAK, POTENT = 4.5, 9.0  # pK beyond which an assay may give a bound only


@dataclass(frozen=True, slots=True)
class Written:
    """A label as the table has it, and what it says on the pK scale.

    Attributes
    ----------
    affinity_type, relation, value, unit : the table's columns, text
    pk : what the text says, -log10(mol/L)
    pk_relation : of RELATIONS, on the pK scale
    """

    affinity_type: str
    relation: str
    value: str
    unit: str
    pk: float
    pk_relation: str


def write_label(pk: float, rng: np.random.Generator) -> Written:
    """Write a pK in a style drawn at random; now and then as a bound that is true of it."""
    draw, bound = rng.random(), rng.random()
    shares = np.cumsum([share for *_, share in STYLES])
    kind, unit, _ = STYLES[int(np.searchsorted(shares, draw * shares[-1]))]
    if bound < 0.3 and pk < WEAK:
        return _bound(math.floor(6.0 - pk), ">", "<")
    if bound < 0.3 and pk > POTENT:
        return _bound(math.ceil(6.0 - pk), "<", ">")
    relation = "~" if bound > 0.98 else "="
    if unit in DELTA_G_UNITS:
        value = f"{-DELTA_G_UNITS[unit] * pk:.3f}"
        said = -float(value) / DELTA_G_UNITS[unit]
    elif unit:
        value = f"{10.0**-pk / CONCENTRATIONS[unit]:.4g}"
        said = -math.log10(float(value) * CONCENTRATIONS[unit])
    else:
        value = f"{pk:.2f}"
        said = float(value)
    return Written(kind, relation, value, unit, said, relation)


def _bound(exponent: int, relation: str, pk_relation: str) -> Written:
    """A bound at a power of ten, in micromolar, as dilution series end."""
    return Written("IC50", relation, f"{10.0**exponent:g}", "uM", 6.0 - exponent, pk_relation)
