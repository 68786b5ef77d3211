"""The command tree: help, exit codes, one-line errors, the JSON line."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys

import pytest

from holoshard import __main__ as main


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "holoshard", *arguments], capture_output=True, text=True)


SUBCOMMANDS = ("stat", "warm", "verify", "clear", "advise")


@pytest.mark.parametrize("command", [*main.COMMANDS, *(f"cache {name}" for name in SUBCOMMANDS)])
def test_every_command_has_help_with_examples(command):
    done = run(*command.split(), "--help")
    assert done.returncode == 0, done.stderr
    assert "::" not in done.stdout
    before, heading, block = done.stdout.partition("\nExamples:\n    holoshard ")
    assert heading
    # Prose flows: a line ends only where the next word would not fit any more, or the paragraph is over.
    lines = before.splitlines()
    for line, after in itertools.pairwise(lines[2:]):
        assert not line or not after or len(f"{line.rstrip()} {after.split()[0]}") > 80, (line, after)
    # Each example is one line, to be copied.
    examples = block.split("\n\n╭")[0].split("\n\nEvery")[0].split("\n\n")
    assert all("\n" not in e and (i == 0 or e.startswith("    holoshard ")) for i, e in enumerate(examples))
    assert f"holoshard {command}" in done.stdout
    assert "--json" in done.stdout
    assert "--debug" in done.stdout


def test_bare_call_and_help_list_the_commands():
    for arguments in ((), ("--help",)):
        done = run(*arguments)
        assert done.returncode == 0
        assert all(command in done.stdout for command in main.COMMANDS)


@pytest.mark.parametrize(
    "arguments",
    [
        ("ingets", "x"),
        ("info",),
        ("info", "x", "--no-such-option"),
        ("ingest", "x", "--out", "y", "--workers", "many"),
    ],
)
def test_a_wrong_call_ends_with_2_and_one_or_two_lines(arguments):
    done = run(*arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert 1 <= len(done.stderr.strip().splitlines()) <= 2
    assert "Traceback" not in done.stderr


def test_missing_folder_names_what_to_do_and_json_carries_it(tmp_path):
    done = run("info", str(tmp_path / "nothing"), "--json")
    assert done.returncode == 2
    last = json.loads(done.stdout.splitlines()[-1])
    assert last["exit"] == 2
    assert "nothing" in last["error"]
    assert "Traceback" not in done.stderr
    assert "Traceback" in run("info", str(tmp_path / "nothing"), "--debug").stderr


def test_a_reader_of_the_output_that_goes_away_is_no_error(small_dataset):
    command = f"{sys.executable} -m holoshard info {small_dataset} | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr
