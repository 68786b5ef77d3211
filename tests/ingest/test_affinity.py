from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holoshard.ingest.chemistry.affinity import parse_label, to_affinities, to_affinity
from holoshard.ingest.chemistry.numerals import kelvin, number
from holoshard.ingest.item import Label
from holoshard.shards.errors import StructureError


def reason_of(*labels: Label) -> str:
    with pytest.raises(StructureError) as caught:
        to_affinity(labels)
    return caught.value.reason


@pytest.mark.parametrize(
    ("text", "pk", "relation", "kind"),
    [
        ("Ki=20nM", 7.699, "=", "Ki"),
        ("IC50<~1uM", 6.0, ">=", "IC50"),
        ("Kd=1.2e-7 M", 6.921, "=", "Kd"),
        (">250 uM", 3.602, "<", "pK"),
        ("Kd~1.5mM", 2.824, "~", "Kd"),
        ("Ki<=10pM", 11.0, ">=", "Ki"),
        ("Kd=1000fM", 12.0, "=", "Kd"),
        ("Kd=0.40M     // 9aag.pdf (AAG)", 0.398, "=", "Kd"),
        ("IC50 = 1,200 nM", 5.921, "=", "IC50"),
        ("EC50 ≥ 3 µM", 5.523, "<=", "EC50"),  # micro sign
        ("EC50: 3 μM", 5.523, "=", "EC50"),  # Greek mu
        ("Ki 5 nM (pH 7.4)", 8.301, "=", "Ki"),
        ("Kd = 1.2 x 10^-7 mol/L", 6.921, "=", "Kd"),
        ("Kd = 1.2 × 10-7 M", 6.921, "=", "Kd"),  # noqa: RUF001
        ("Ki = 4.5 ± 0.3 nM", 8.347, "=", "Ki"),
        ("Ki = 1.2·10⁻⁷ M", 6.921, "=", "Ki"),
        ("Ki = 10⁻⁷ M", 7.0, "=", "Ki"),
        ("Ki = 1.2 * 10**(-7) mol·L⁻¹", 6.921, "=", "Ki"),
        ("IC₅₀ ⩽ 3 µM", 5.523, ">=", "IC50"),
        ("Ki = 7·5 nM", 8.125, "=", "Ki"),  # a decimal point as the Lancet sets it
        ("Ki = 12,5 nM", 7.903, "=", "Ki"),
        ("Ki = 0,125 nM", 9.903, "=", "Ki"),  # no thousands begin with 0
        ("∆G° = −34.2 kJ·mol⁻¹", 5.992, "=", "dG"),  # noqa: RUF001
        ("Ki = <10 nM", 8.0, ">", "Ki"),
        ("Ki=<10 nM", 8.0, ">=", "Ki"),
        ("Kd = 20 nmol l-1", 7.699, "=", "Kd"),
        ("Kd = 20 nmol·L⁻¹", 7.699, "=", "Kd"),
        ("Ki = 20 nM ± 2 nM", 7.699, "=", "Ki"),
        ("Ki=20nM // as measured", 7.699, "=", "Ki"),
        ("pIC50 = 7.2", 7.2, "=", "IC50"),
        ("pKd > 9", 9.0, ">", "Kd"),
        ("-logKd/Ki=6.82", 6.82, "=", "pK"),
        ("dG = -8.18 kcal/mol", 5.996, "=", "dG"),
        ("ΔG=-34.2 kJ/mol", 5.992, "=", "dG"),
        ("-8.18 kcal mol^-1", 5.996, "=", "dG"),
        ("dG > -6 kcal/mol", 4.398, "<", "dG"),  # weaker than: a smaller pK
        ("|dG| > 6 kcal/mol", 4.398, ">", "dG"),  # the size of it: a larger pK
    ],
)
def test_free_text(text: str, pk: float, relation: str, kind: str) -> None:
    affinity = to_affinity([Label(text=text)])
    assert affinity.pk == pytest.approx(pk, abs=1e-3)
    assert (affinity.relation, affinity.kind, affinity.count, affinity.spread) == (relation, kind, 1, 0.0)
    assert affinity.text == text.strip()


@pytest.mark.parametrize(
    ("unit", "exponent"),
    [("M", 0), ("mM", 3), ("uM", 6), ("um", 6), ("µM", 6), ("μM", 6), ("nM", 9), ("nm", 9), ("pM", 12),
     ("fM", 15), ("nmol/L", 9), ("umol/l", 6), ("nanomolar", 9), ("Micromolar", 6)],
)  # fmt: skip
def test_units_of_concentration(unit: str, exponent: int) -> None:
    value = "0.5" if exponent == 0 else "1000" if exponent == 15 else "5"
    expected = exponent - math.log10(float(value))
    assert to_affinity([Label("Kd", "=", value, unit)]).pk == pytest.approx(expected)


@pytest.mark.parametrize(
    "unit", ["kcal/mol", "kcal mol-1", "kilocalories_per_mole", "kcal", "kilocalories / mole"]
)
def test_units_of_energy(unit: str) -> None:
    assert to_affinity([Label("dG", "=", "-8.18", unit)]).pk == pytest.approx(5.996, abs=1e-3)


def test_temperature_counts() -> None:
    cold = to_affinity([Label("dG", "=", "-8.18", "kcal/mol", temperature=280.0)])
    assert cold.pk == pytest.approx(5.996 * 298.15 / 280, abs=1e-3)
    assert cold.text == "dG = -8.18 kcal/mol at 280 K"


@pytest.mark.parametrize(
    ("label", "reason"),
    [
        (Label("Kd", "=", "0", "nM"), "label_nonpositive"),
        (Label("Kd", "=", "-3", "nM"), "label_nonpositive"),
        (Label("Kd", "=", "1e-9", "nM"), "label_implausible"),
        (Label("pKd", "=", "180", ""), "label_implausible"),
        (
            Label("dG", "=", "8.18", "kcal/mol"),
            "label_implausible",
        ),  # the size of a dG under the name of a dG
        (Label("dG_relative", "=", "-0.99", "kcal/mol"), "label_relative"),
        (Label("ΔΔG", "=", "-0.99", "kcal/mol"), "label_relative"),
        (Label("Kd", "=", "", "nM"), "label_missing"),
        (Label(), "label_missing"),
        (Label("Kd", "=", "5", ""), "label_unreadable"),  # no unit: never taken for a pK
        (Label("", "=", "7.2", ""), "label_unreadable"),
        (Label("Kd", "=", "5", "mg/mL"), "label_unreadable"),
        (Label("Kd", "=", "abc", "nM"), "label_unreadable"),
        (Label("Kd", "=", "nan", "nM"), "label_missing"),
        (Label("Kd", "?", "5", "nM"), "label_unreadable"),
        (Label("inhibition", "=", "45", "%"), "label_unreadable"),
        (Label("kon", "=", "5", "nM"), "label_unreadable"),
        (Label("dG", "=", "-8.18", ""), "label_unreadable"),
        (Label("dG", "=", "-8.18", "nM"), "label_unreadable"),
        (Label("pKd", "=", "7", "kcal/mol"), "label_unreadable"),
        (Label(text="not understood"), "label_unreadable"),
        (Label(text="not determined"), "label_missing"),
        (Label(text="n.d."), "label_missing"),
        (Label("Ki", "=", "", "nM", text="ND"), "label_missing"),
        (Label(text="Kd = n.d."), "label_missing"),
        (Label("Ki", "=", "?", "nM"), "label_missing"),
        (Label(text="Ki=2-5 nM"), "label_unreadable"),
        (Label(text="Ki=2–5 nM"), "label_unreadable"),  # noqa: RUF001
        (Label(text="Ki=2 to 5 nM"), "label_unreadable"),
        (Label(text="Ki=5 x 100 nM"), "label_unreadable"),
        (Label("Ki", "=", "1 2", "nM"), "label_unreadable"),
        (Label("Ki", "=", "1,2,3", "nM"), "label_unreadable"),
        (Label("Ki", "=", "inf", "nM"), "label_unreadable"),
        (Label("pKd", "=", "1e-400", ""), "label_implausible"),
        (Label("pKd", "=", "1e-40", ""), "label_implausible"),  # zero as float32
        (Label("Kd", "=", "1e400", "nM"), "label_implausible"),
        (Label("Kd", "=", "1e-400", "nM"), "label_implausible"),
        (Label("pKd", "=", "9" * 100, ""), "label_implausible"),
        (Label("Kd", "=", "0.000", "nM"), "label_nonpositive"),
        (Label("Kd", "=", "-0", "nM"), "label_nonpositive"),
        (Label("Kd", "=", "9" * 4000, "nM"), "label_unreadable"),
        (Label("dG", "=", "-8.18", "kcal/mol", temperature=25.0), "label_implausible"),
        (Label("dG", "=", "8.18", "kcal/mol", temperature=-298.15), "label_implausible"),
        (Label("dG", "=", "-1e308", "kcal/mol"), "label_implausible"),
        (Label("dG", "=", "-8.18", "kcal/mol", temperature=math.nan), "label_unreadable"),
    ],
)
def test_refusals(label: Label, reason: str) -> None:
    assert reason_of(label) == reason


def test_no_label_at_all() -> None:
    assert reason_of() == "label_missing"


@pytest.mark.parametrize("text", ["", "  "])
def test_empty_text(text: str) -> None:
    with pytest.raises(StructureError) as caught:
        parse_label(text)
    assert caught.value.reason == "label_missing"


def test_repeats_are_merged_by_their_median_on_the_log_scale() -> None:
    labels = [Label("Ki", "=", value, "nM") for value in ("10", "1000", "20")]
    affinity = to_affinity(labels)
    assert affinity.pk == pytest.approx(-math.log10(20e-9))
    assert affinity.count == 3
    assert affinity.spread == pytest.approx(2.0)
    assert affinity.text == "Ki = 10 nM; Ki = 1000 nM; Ki = 20 nM"


def test_repeats_kept_apart() -> None:
    labels = [Label("IC50", "=", "7", "nM"), Label("Ki", "=", "10", "nM"), Label("Ki", "=", "1000", "nM")]
    apart = to_affinities(labels, "separate")
    assert [(a.kind, round(a.pk, 2), a.count) for a in apart] == [
        ("Ki", 8.0, 1),
        ("Ki", 6.0, 1),
        ("IC50", 8.15, 1),
    ]
    assert to_affinity(labels, "separate") == apart[0]


def test_kinds_are_never_mixed() -> None:
    labels = [Label("IC50", "=", "1", "nM"), Label("Kd", "=", "100", "nM"), Label("pKi", "=", "9", "")]
    affinity = to_affinity(labels)
    assert (affinity.kind, affinity.pk, affinity.count) == ("Kd", pytest.approx(7.0), 1)
    assert [a.kind for a in to_affinities(labels)] == ["Kd", "Ki", "IC50"]


@pytest.mark.parametrize(
    ("labels", "pk", "relation", "count"),
    [
        ([("<", "10"), ("<", "1")], 9.0, ">", 2),  # the tightest bound
        ([(">", "10000"), (">", "100000")], 4.0, "<", 2),
        ([(">", "10000"), ("=", "20000")], 4.699, "=", 1),  # a value says more than a bound
        ([("~", "10"), ("=", "1000")], 7.0, "~", 2),
        ([(">", "100"), ("<", "10000")], 6.0, "~", 2),  # between two bounds
    ],
)
def test_bounds_among_repeats(labels: list[tuple[str, str]], pk: float, relation: str, count: int) -> None:
    affinity = to_affinity([Label("Ki", sign, value, "nM") for sign, value in labels])
    assert affinity.pk == pytest.approx(pk, abs=1e-3)
    assert (affinity.relation, affinity.count) == (relation, count)
    assert affinity.is_censored == (relation in "<>")


def test_a_good_label_survives_a_bad_one_beside_it() -> None:
    affinity = to_affinity([Label("Ki", "=", "0", "nM"), Label("Ki", "=", "10", "nM")])
    assert (affinity.pk, affinity.count) == (pytest.approx(8.0), 1)
    assert affinity.text == "Ki = 0 nM; Ki = 10 nM"


@pytest.mark.parametrize("kind", ["active", "inactive"])
def test_activity_without_a_number(kind: str) -> None:
    affinity = to_affinity([Label(kind)])
    assert math.isnan(affinity.pk)
    assert (affinity.kind, affinity.relation) == (kind, "none")


@pytest.mark.parametrize(
    ("text", "kind"), [("Inactive", "inactive"), ("not active", "inactive"), ("active", "active")]
)
def test_activity_in_a_column_of_numbers(text: str, kind: str) -> None:
    assert to_affinity([Label("IC50", "=", "", "nM", text)]).kind == kind
    mixed = to_affinity([Label("IC50", "=", "", "nM", text), Label("IC50", "=", "5", "nM")])
    assert (mixed.kind, mixed.count) == ("IC50", 1)


def test_case_index_units(shared: Path) -> None:
    case = shared / "cases/28-label-index-units"
    expected = json.loads((case / "expected.json").read_text())
    for line in (case / "INDEX.txt").read_text().splitlines():
        if line.startswith("#"):
            continue
        code, _, _, _, label = line.split()[:5]
        affinity = to_affinity([Label(text=label)])
        assert affinity.pk == pytest.approx(expected["pK"][code], abs=1e-3)
        assert affinity.relation == expected["relation"][code]
        if code in expected["type"]:
            assert affinity.kind == expected["type"][code]


def test_case_censored(shared: Path) -> None:
    case = shared / "cases/29-label-censored"
    expected = json.loads((case / "expected.json").read_text())
    with (case / "bdb.tsv").open() as file:
        for row in csv.DictReader(file, delimiter="\t"):
            want = expected[row["id"]]
            labels = [Label(text=f"{kind}{'' if row[f'{kind} (nM)'].strip()[:1] in '<>' else '='}"
                            f"{row[f'{kind} (nM)'].strip()}nM")
                      for kind in ("Ki", "Kd", "IC50") if (row[f"{kind} (nM)"] or "").strip()]  # fmt: skip
            if "code" in want:
                assert reason_of(*labels) == want["code"]
            else:
                affinity = to_affinity(labels)
                assert affinity.pk == pytest.approx(want["pK"], abs=1e-3)
                assert affinity.relation == want["relation"]


def test_real_labels_agree_with_the_curated_pk(shared: Path) -> None:
    seen = relative = censored = 0
    with (shared / "data/real/complexes.csv").open() as file:
        for row in csv.DictReader(file):
            label = Label(row["affinity_type"], row["relation"], row["value"], row["unit"])
            seen += 1
            if not row["pK"]:
                assert reason_of(label) == "label_relative"
                relative += 1
                continue
            affinity = to_affinity([label])
            assert affinity.pk == pytest.approx(float(row["pK"]), abs=0.02), row["id"]
            assert affinity.relation == {"=": "=", ">": "<", "<": ">"}[row["relation"]]
            censored += affinity.is_censored
    assert (seen, relative, censored) == (1476, 23, 2)


def test_pdbbind_index_agrees_with_its_own_logarithms(shared: Path) -> None:
    seen = 0
    for index in sorted((shared / "data/real/layouts/pdbbind_style/index").iterdir()):
        for line in index.read_text().splitlines():
            fields = line.split()
            if line.startswith("#") or len(fields) < 5:
                continue
            affinity = to_affinity([Label(text=fields[4])])
            assert affinity.pk == pytest.approx(float(fields[3]), abs=0.006)
            seen += 1
    assert seen > 4


@given(st.text(alphabet="0123456789.,eE+-<>=~ pKdiIC50nuµM/molkcaG|()^x*%Δ", max_size=24))
def test_any_text_is_a_label_or_a_reason(text: str) -> None:
    try:
        affinity = to_affinity([Label(text=text)])
    except StructureError as error:
        reason = error.reason
    else:
        reason = ""
        assert 0 <= affinity.pk <= 15
    assert reason == "" or reason.startswith("label_")


@given(st.floats(1e-14, 1.0), st.sampled_from(["M", "mM", "uM", "nM", "pM", "fM"]), st.sampled_from("=<>"))
def test_units_are_interchangeable(molar: float, unit: str, sign: str) -> None:
    scale = {"M": 1, "mM": 1e3, "uM": 1e6, "nM": 1e9, "pM": 1e12, "fM": 1e15}[unit]
    affinity = to_affinity([Label("Kd", sign, repr(molar * scale), unit)])
    assert affinity.pk == pytest.approx(-math.log10(molar), abs=1e-9)
    assert affinity.relation == {"=": "=", "<": ">", ">": "<"}[sign]


@pytest.mark.parametrize(
    ("value", "expected"),
    [("1,200", 1200), ("1 200", 1200), ("1 200,5", 1200.5), ("1.234,5", 1234.5), ("12,50", 12.5),
     ("0,123", 0.123), ("-8,5", -8.5), ("1,234.5", 1234.5), ("2e-3", 0.002), ("1.2X10+3", 1200),
     ("5 ±1", 5), ("\u22121.5", -1.5)],
)  # fmt: skip
def test_numbers_keep_their_value(value: str, expected: float) -> None:
    assert number(value, "x") == pytest.approx(expected)


def test_temperatures() -> None:
    cells = ("298", "298.15 K", "25 °C", "25ºC", "", "n/a")
    assert [kelvin(cell) for cell in cells] == [298.0, 298.15, 298.15, 298.15, 0.0, 0.0]
    assert math.isnan(kelvin("warm"))


def test_a_relation_beside_a_text_counts() -> None:
    affinity = to_affinity([Label("Ki", ">", "", "uM", "4.5 ± 0.3")])
    assert (affinity.relation, affinity.text) == ("<", "Ki > 4.5 ± 0.3 uM")
    assert to_affinity([Label("Ki", "'='", "4.5", "uM")]).relation == "="
