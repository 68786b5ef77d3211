"""Numbers and signs as people and typesetters write them, read without a silent change of their value."""

from __future__ import annotations

import math
import re
import unicodedata
from typing import Final

from ...shards.errors import StructureError

LARGEST: Final = 1e30  # a constant of 1 M is 1e15 fM: beyond this, or below its inverse, nothing is measured

# What people write where they have nothing to write.
_BLANK: Final = frozenset({
    "", "-", "--", ".", "?", "na", "n/a", "n.a.", "nan", "none", "null", "nd", "n.d.", "n.d", "n/d", "nt",
    "n.t.", "n.t", "not determined", "not available", "not tested", "not measured", "unknown",
})  # fmt: skip
# One way of writing what typesetters have several of: relations, micro, minus, multiplication, delta, degree.
_SIGNS: Final = str.maketrans({
    "\u2264": "<=", "\u2a7d": "<=", "\u2266": "<=", "\u2272": "<=",
    "\u2265": ">=", "\u2a7e": ">=", "\u2267": ">=", "\u2273": ">=",
    "\u2248": "~", "\u2243": "~", "\u223c": "~", "\u2245": "~", "\u00b5": "u", "\u03bc": "u",
    "\u2212": "-", "\u2010": "-", "\u2011": "-", "\u2012": "-", "\u2013": "-",
    "\u00d7": "x", "\u00b7": ".", "\u22c5": ".", "\u2219": ".", "\u2206": "\u0394", "\u00ba": "\u00b0",
})  # fmt: skip
_RAISED: Final = "\u207a\u207b\u2070\u00b9\u00b2\u00b3\u2074-\u2079"  # superscript signs and digits
_POWER: Final = re.compile(rf"(?<=[0-9])(?=[{_RAISED}])")  # where "10⁻⁷" needs its "^"
_DOT_TIMES: Final = re.compile(r"(?<=[0-9])\s*[\u00b7\u22c5\u2219]\s*(?=10\s*(?:\^|\*\*|[-+\u2212]\d))")
_TIMES_TEN: Final = re.compile(r"(?<=[\d.])\s*[xX*]\s*10\s*(?:(?:\^|\*\*)\s*\(?|\(|(?=[-+]))([-+]?\d+)\)?")
_TEN: Final = re.compile(r"(?<![\w.^*])10\s*(?:\^|\*\*)\s*\(?([-+]?\d+)\)?")
_ERROR_BAR: Final = re.compile(r"\s*(?:±|\+/-|\+-).*$")
_NUMBER: Final = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_THOUSANDS: Final = re.compile(
    r"[-+]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?|[-+]?[1-9]\d{0,2}(?: \d{3})+(?:[.,]\d*)?"
)
_CONTINENTAL: Final = re.compile(r"[-+]?[1-9]\d{0,2}(?:\.\d{3})+,\d*")  # 1.234,5


def blank(text: str) -> bool:
    """True for a cell or a label that says nothing: empty, ``NA``, ``n.d.``, ``not tested``, ..."""
    return text.strip().lower() in _BLANK


def plain(text: str) -> str:
    """Text without the typesetter's variants; powers of ten as ``1.2e-7``."""
    if not text.isascii():
        text = _DOT_TIMES.sub("x", _POWER.sub("^", text)).translate(_SIGNS)
        text = unicodedata.normalize("NFKC", text).translate(_SIGNS)
    return _TEN.sub(r"1e\1", _TIMES_TEN.sub(r"e\1", text)) if "10" in text else text


def number(text: str, label: str) -> float:
    """A number as tables write it: thousands with commas, decimal commas, ``1.2x10^-7``, an error bar.

    Parameters
    ----------
    label : what it is part of, for messages

    Raises
    ------
    StructureError
        ``label_unreadable``; ``label_implausible`` for what is too large or too small to be measured, or for
        a float to hold.
    """
    written = text if _NUMBER.fullmatch(text) else _without_habits(text)
    if not _NUMBER.fullmatch(written):
        raise StructureError("label_unreadable", f"number {text!r} of the label {label!r}")
    value = float(written)
    is_zero = not re.search("[1-9]", re.split("[eE]", written)[0])
    if not is_zero and not 1 / LARGEST <= abs(value) <= LARGEST:
        raise StructureError(
            "label_implausible", f"number {text!r} of the label {label!r} is beyond anything measured"
        )
    return value


def _without_habits(text: str) -> str:
    written = _ERROR_BAR.sub("", plain(text)).strip()
    if _CONTINENTAL.fullmatch(written):
        return written.replace(".", "").replace(",", ".")
    if _THOUSANDS.fullmatch(written):
        return written.replace(" ", "").replace(",", "" if " " not in written else ".")
    return written.replace(",", ".") if written.count(",") == 1 and "." not in written else written


def kelvin(text: str) -> float:
    """A temperature, "298", "298.15 K" or "25 °C", in kelvin; 0 for a blank cell, NaN if unreadable."""
    if blank(text):
        return 0.0
    written = plain(text).replace(" ", "").replace("\u00b0", "").upper()
    match = re.fullmatch(r"(-?\d+(?:[.,]\d+)?)(K|C|KELVIN|CELSIUS)?", written)
    if match is None:
        return math.nan
    value = float(match[1].replace(",", "."))
    return value + 273.15 if (match[2] or "K").startswith("C") else value
