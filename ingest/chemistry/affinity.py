"""Labels as sources write them -> one :class:`Affinity` on the pK scale.

``pK = -log10(K / (mol/L))``. A free energy becomes ``pK = -dG / (R T ln 10)`` with R = 1.987204e-3 kcal/mol/K
(CODATA 2018: 8.314462618 J/mol/K) and 1 kcal = 4.184 kJ; 1.3642 kcal/mol a unit at 298.15 K.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from ...shards.complex import Affinity
from ...shards.errors import StructureError
from ..item import Label
from .numerals import blank, number, plain

__all__ = ["Merge", "parse_label", "to_affinities", "to_affinity"]

Merge = Literal["median", "separate"]
GAS_CONSTANT: Final = 1.987204e-3  # kcal/mol/K
JOULES_A_CALORIE: Final = 4.184
ROOM_TEMPERATURE: Final = 298.15  # K, where a source has none
PLAUSIBLE: Final = (0.0, 15.0)  # pK
TEMPERATURES: Final = (200.0, 450.0)  # K, of anything bound in solution
MAX_LENGTH: Final = 400  # characters; a label is a few words

# A direct constant before an indirect one: what is kept where a complex has measurements of several kinds.
PREFERENCE: Final = ("Kd", "Ki", "dG", "IC50", "EC50", "pK", "active", "inactive", "synthetic")
_SILENT: Final = ("active", "inactive")  # kinds that say something without a number

_PREFIXES: Final = {"": 0, "m": -3, "u": -6, "n": -9, "p": -12, "f": -15}
_PREFIX_NAMES: Final = {"": 0, "milli": -3, "micro": -6, "nano": -9, "pico": -12, "femto": -15}
_MOLAR: Final = (
    {
        f"{p}{unit}": e
        for p, e in _PREFIXES.items()
        for unit in ("M", "mol/L", "mol/l", "mol/dm3", "molL-1", "moll-1", "moldm-3")
    }
    | {f"{p}molar": e for p, e in _PREFIX_NAMES.items()}
    | {f"{p}m": e for p, e in _PREFIXES.items() if p}  # "um", "nm": written so in many tables
)
_ENERGY: Final = {
    "kcal/mol": 1.0,
    "kj/mol": 1 / JOULES_A_CALORIE,
    "cal/mol": 1e-3,
    "j/mol": 1e-3 / JOULES_A_CALORIE,
}
_RELATIONS: Final = {
    "": "=", "=": "=", "==": "=", "~": "~", "~=": "~", "=~": "~", "<": "<", "<<": "<", ">": ">", ">>": ">",
    "<=": "<=", "=<": "<=", "<~": "<=", "~<": "<=", ">=": ">=", "=>": ">=", ">~": ">=", "~>": ">=",
}  # fmt: skip
_ACTIVITIES: Final = {"active": "active", "inactive": "inactive", "notactive": "inactive"}  # as a text
_TURNED: Final = {"=": "=", "~": "~", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
_CONSTANTS: Final = {"kd": "Kd", "ki": "Ki", "ic50": "IC50", "ec50": "EC50"}
_LOGARITHMS: Final = (
    {f"p{k}": v for k, v in _CONSTANTS.items()}
    | {f"{s}log{k}": v for k, v in _CONSTANTS.items() for s in ("-", "neg")}
    | {f"{s}log10{k}": v for k, v in _CONSTANTS.items() for s in ("-", "neg")}
    | dict.fromkeys(
        ("pk", "pkdki", "-logk", "-logkdki", "neglogk", "neglogkdki", "neglogaff", "pkaff", "paff",
         "paffinity", "pactivity", "pchembl", "pchemblvalue", "synthetic"), "pK",
    )
)  # fmt: skip
_ANY_CONSTANT: Final = ("", "k", "kdki", "affinity", "bindingaffinity")  # of a unit of concentration
_RELATIVE: Final = re.compile(r"ddg|deltadelta|ΔΔ|δδ|rel", re.IGNORECASE)
_TEXT: Final = re.compile(
    r"^\s*(?P<kind>[^<>=~\d]*?(?:[IE]C\s?50)?[^<>=~\d]*?)\s*(?:=\s+(?=[<>~]))?(?P<relation>[<>=~]*)\s*"
    r"(?P<value>[-+]?(?:\d|\.\d)[\d.,]*(?:e[-+]?\d+)?)\s*(?:(?:±|\+/-)\s*[\d.]+\s*)?"
    r"(?P<unit>[a-z/ ._^-]*?\d?)\s*(?:(?:±|\+/-)\s*[\d.]+[a-z/ ._^-]*\d?\s*)?(?:\(.*|//.*)?$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class _Measurement:
    pk: float
    relation: str
    kind: str
    text: str


def parse_label(text: str) -> Label:
    """A label written as one string, as ``Ki=20nM``, ``IC50<~1uM``, ``Kd=1.2e-7 M``, ``>250 uM``, ``pIC50 =
    7.2``.

    Raises
    ------
    StructureError
        ``label_missing`` for a text that says nothing, as ``n.d.`` or ``Ki: NA`` do; ``label_unreadable`` for
        one that is no such string.
    """
    written = plain(text)
    if blank(written) or blank(re.split("[=:]", written)[-1]):
        raise StructureError("label_missing", f"the label {text!r} says nothing")
    match = _TEXT.match(written)
    if match is None:
        raise StructureError("label_unreadable", f"label {text!r}, where something like 'Ki=20nM' is due")
    kind = match["kind"].strip(" :([")
    return Label(kind, match["relation"] or "=", match["value"], match["unit"].strip())


def to_affinity(labels: Sequence[Label], merge: Merge = "median") -> Affinity:
    """The one label of a complex.

    Where there are several kinds of measurement the first of ``PREFERENCE`` is taken and the others stay in
    ``text`` only: kinds are never mixed. With ``merge="median"`` repeats of that kind become their median on
    the pK scale, with their number and spread; with ``"separate"`` the first one stands alone (see
    :func:`to_affinities` for all of them).

    Raises
    ------
    StructureError
        ``label_missing``, ``label_unreadable``, ``label_nonpositive``, ``label_implausible``,
        ``label_relative``: the first trouble, if no label is good.
    """
    return to_affinities(labels, merge)[0]


def to_affinities(labels: Sequence[Label], merge: Merge = "median") -> tuple[Affinity, ...]:
    """Every kind of measurement apart (``"median"``: one of each kind; ``"separate"``: one of each
    measurement).

    Raises
    ------
    StructureError
        as :func:`to_affinity`.
    """
    written = "; ".join(dict.fromkeys(filter(None, map(describe, labels))))
    good: list[_Measurement] = []
    trouble: StructureError | None = None
    for label in labels:
        try:
            good.append(_measure(label))
        except StructureError as error:
            # a cell that says nothing is no trouble beside one that says something wrong
            if trouble is None or (trouble.reason == "label_missing" != error.reason):
                trouble = error
    if not good:
        raise trouble or StructureError("label_missing", "no label")
    good.sort(key=lambda m: PREFERENCE.index(m.kind))  # stable: the source's order within a kind
    if merge == "separate":
        return tuple(Affinity(m.pk, m.relation, m.kind, 1, 0.0, written) for m in good)
    kinds = dict.fromkeys(m.kind for m in good)
    return tuple(_merge([m for m in good if m.kind == kind], written) for kind in kinds)


def describe(label: Label) -> str:
    """A label as its source wrote it, on one line."""
    temperature = f" at {label.temperature:g} K" if label.temperature else ""
    relation, value = label.relation.strip(), label.value.strip()
    if label.text:  # speaks for itself, but for what the columns beside it add
        relation, value = relation if relation != "=" else "", label.text.strip()
    parts = (label.kind.strip(), relation if value else "", value, label.unit.strip())
    return " ".join(filter(None, parts)) + temperature


def _merge(measurements: list[_Measurement], text: str) -> Affinity:
    """Median of the values; where there are only bounds, the tightest; between two bounds, their middle as
    ``~``.
    """
    kind = measurements[0].kind
    if kind in _SILENT:
        return Affinity(math.nan, "none", kind, len(measurements), 0.0, text)
    exact = [m for m in measurements if m.relation in "=~"]
    if exact:
        values = [m.pk for m in exact]
        relation = "=" if all(m.relation == "=" for m in exact) else "~"
        return Affinity(
            statistics.median(values), relation, kind, len(values), max(values) - min(values), text
        )
    values = [m.pk for m in measurements]
    spread = max(values) - min(values)
    lower = max((m for m in measurements if m.relation[0] == ">"), key=lambda m: m.pk, default=None)
    upper = min((m for m in measurements if m.relation[0] == "<"), key=lambda m: m.pk, default=None)
    if lower and upper:
        return Affinity((lower.pk + upper.pk) / 2, "~", kind, len(values), spread, text)
    bound = lower or upper or measurements[0]
    return Affinity(bound.pk, bound.relation, kind, len(values), spread, text)


def _measure(label: Label) -> _Measurement:
    """One label on the pK scale."""
    text = describe(label)
    if len(text) > MAX_LENGTH:
        raise StructureError("label_unreadable", f"a label of {len(text)} characters: {text[:40]!r}...")
    if label.text and not label.value:
        activity = _ACTIVITIES.get(_canonical(label.text))
        if activity:
            return _Measurement(math.nan, "none", activity, text)
        parsed = parse_label(label.text)
        label = Label(
            parsed.kind or label.kind,
            parsed.relation if parsed.relation != "=" else label.relation,
            parsed.value,
            parsed.unit or label.unit,
            "",
            label.temperature,
        )
    kind = _canonical(label.kind)
    if kind in _SILENT:
        return _Measurement(math.nan, "none", kind, text)
    if _RELATIVE.search(kind):
        raise StructureError(
            "label_relative", f"{text!r} is relative to a reference ligand: no pK can be had from it"
        )
    if blank(label.value):
        raise StructureError("label_missing", "an empty label")
    pk, relation, name = _to_pk(label, kind, text)
    if not PLAUSIBLE[0] <= pk <= PLAUSIBLE[1]:
        raise StructureError(
            "label_implausible", f"{text!r} is a pK of {pk:.2f}, where one of 0 to 15 is due"
        )
    return _Measurement(pk, relation, name, text)


def _to_pk(label: Label, kind: str, text: str) -> tuple[float, str, str]:
    """pK, its relation, and the kind of :data:`KINDS`."""
    value = number(label.value, text)
    relation = _RELATIONS.get(plain(label.relation).replace(" ", "").strip("'\""))  # ChEMBL quotes them
    if relation is None:
        raise StructureError("label_unreadable", f"relation {label.relation!r} of the label {text!r}")
    unit = plain(label.unit).strip()
    energy = _energy(unit)
    if kind in ("dg", "|dg|", "-dg", "absdg", "negdg"):
        if energy is None:
            raise StructureError(
                "label_unreadable",
                f"unit {label.unit!r} of the label {text!r}, where kcal/mol or kJ/mol is due",
            )
        return _from_energy(value * energy, label.temperature, relation, magnitude=kind != "dg")
    if kind in _LOGARITHMS:
        if unit and _molar(unit) is None:  # "pKd (M)" is on the scale of mol/L all the same
            raise StructureError(
                "label_unreadable", f"unit {label.unit!r} of the logarithm {text!r}, which has none"
            )
        return value, relation, _LOGARITHMS[kind]
    if kind not in _CONSTANTS and kind not in _ANY_CONSTANT:
        raise StructureError(
            "label_unreadable",
            f"kind {label.kind!r} of the label {text!r}, where Kd, Ki, IC50, EC50, dG or pK is due",
        )
    exponent = _molar(unit)
    if exponent is None:
        if not kind and energy is not None:
            return _from_energy(value * energy, label.temperature, relation, magnitude=False)
        hint = "; if it is a pK, say so: kind pK" if not (kind or unit) else ""
        raise StructureError(
            "label_unreadable",
            f"unit {label.unit!r} of the label {text!r}, where one such as nM is due{hint}",
        )
    if value <= 0:
        raise StructureError("label_nonpositive", f"{text!r} is a concentration of zero or less")
    return -math.log10(value) - exponent, _TURNED[relation], _CONSTANTS.get(kind, "pK")


def _from_energy(kcal: float, temperature: float, relation: str, magnitude: bool) -> tuple[float, str, str]:
    """A free energy grows as the constant does, so its relation turns round on the pK scale; its magnitude
    does not.
    """
    if math.isnan(temperature):
        raise StructureError("label_unreadable", "the temperature of a free energy is no number of kelvin")
    low, high = TEMPERATURES
    if temperature and not low <= temperature <= high:
        raise StructureError(
            "label_implausible",
            f"a free energy at {temperature:g} K, where one at {low:g} to {high:g} is due",
        )
    per_unit = math.log(10) * GAS_CONSTANT * (temperature or ROOM_TEMPERATURE)
    if magnitude:
        return kcal / per_unit, relation, "dG"
    return -kcal / per_unit, _TURNED[relation], "dG"


@lru_cache(maxsize=256)  # a table has a handful of kinds and units
def _canonical(kind: str) -> str:
    """A kind without case, blanks, brackets and underscores, a delta as d."""
    found = plain(kind).strip().lower()
    found = re.sub(r"[\s_/().\[\]:°]|binding$|bind$", "", found)
    return found if _RELATIVE.search(found) else re.sub(r"delta|δ", "d", found)


@lru_cache(maxsize=256)
def _molar(unit: str) -> int | None:
    """Power of ten of a unit of concentration."""
    exact = re.sub(r"[\s.^]", "", unit)
    found = _MOLAR.get(exact)
    return found if found is not None else (_MOLAR.get(exact.lower()) if len(exact) > 1 else None)


@lru_cache(maxsize=256)
def _energy(unit: str) -> float | None:
    """kcal/mol in a unit of molar energy."""
    found = re.sub(r"[\s_.]", "", unit.lower())
    found = re.sub(r"kilo(cal|j)(?:orie|oule)s?", r"k\1", found)
    found = re.sub(r"(?:per|/)?mol(?:e|\^?-1)?$", "/mol", found)
    return _ENERGY.get(found if "/" in found else f"{found}/mol")
