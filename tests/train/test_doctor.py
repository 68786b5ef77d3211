from __future__ import annotations

import json

import pytest

from holoshard.__main__ import main
from holoshard.train.doctor import examine, findings, text_of

EQUAL = [{"name": "A", "memory": 80 << 30, "capability": "9.0"}] * 2
OTHER = [
    {"name": "A", "memory": 80 << 30, "capability": "9.0"},
    {"name": "B", "memory": 16 << 30, "capability": "7.5"},
]
GOOD = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}


def told(environment, devices):
    return [f.what for f in findings(environment, devices) if "/dev/shm" not in f.what]


def test_nothing_is_wrong_with_good_settings():
    assert told(GOOD, EQUAL) == []
    assert told({}, []) == []


@pytest.mark.parametrize(
    ("environment", "devices", "what"),
    [
        (GOOD, OTHER, "several kinds"),
        (GOOD, OTHER, "computes bf16 slowly"),
        ({}, EQUAL, "allocator may fragment"),
        ({**GOOD, "NCCL_P2P_DISABLE": "1"}, EQUAL, "direct paths"),
        ({**GOOD, "NCCL_DEBUG": "info"}, EQUAL, "NCCL_DEBUG"),
        ({"OMP_NUM_THREADS": "100000"}, [], "OMP_NUM_THREADS=100000"),
    ],
)
def test_what_is_wrong_is_found(environment, devices, what):
    assert any(what in found for found in told(environment, devices))


def test_it_speaks_to_people_and_machines(capsys):
    assert main(["doctor", "--json"]) == 0
    *text, last = capsys.readouterr().out.splitlines()
    found = json.loads(last)
    assert found["packages"]["torch"]
    assert "gloo" in found["backends"]
    assert any(line.startswith("Python") for line in text)


def test_settings_are_shown_and_others_are_not():
    result = examine({"NCCL_DEBUG": "WARN", "PASSWORD": "x"})
    assert result["settings"] == {"NCCL_DEBUG": "WARN"}
    assert "NCCL_DEBUG=WARN" in text_of(result)
