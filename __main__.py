"""One command tree. Each room brings its commands; they are imported only when called."""

from __future__ import annotations

import importlib
import json
import logging
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .shards.console import HelpPages
from .shards.errors import MissingExtraError, UsageError

COMMANDS = {
    "sample": ("holoshard.ingest.cli:sample", "Write the embedded sample: real files, known labels."),
    "ingest": ("holoshard.ingest.cli:ingest", "Structures to parts; a ledger of what was kept and refused."),
    "ledger": ("holoshard.ingest.cli:ledger", "Show what an ingest kept and refused, and why."),
    "shard": ("holoshard.shards.make.cli:shard", "Parts to a data set: deduplicate, split, shuffle, write."),
    "info": ("holoshard.shards.cli:info", "Facts about a data set."),
    "show": ("holoshard.shards.cli:show", "One complex in words."),
    "verify": ("holoshard.shards.make.cli:verify", "Every byte of a data set against its checksum."),
    "append": ("holoshard.shards.make.cli:append", "More parts for a data set; nothing there is rewritten."),
    "convert": ("holoshard.shards.make.cli:convert", "HDF5 to Zarr and back, nothing packed again."),
    "leakage": ("holoshard.shards.cli:leakage", "How near the test set is to the training set."),
    "export": ("holoshard.shards.cli:export", "Complexes back to SDF and PDB."),
    "cache": ("holoshard.cache.cli:app", "Look after the caches of a node."),
    "train": ("holoshard.train.cli:train", "Train a model, or go on where a run stopped."),
    "plan": ("holoshard.train.cli:plan", "Memory and traffic of every way to spread a model."),
    "eval": ("holoshard.train.cli:evaluate", "Judge a run on a split; figures and a report."),
    "prune": ("holoshard.train.cli:prune", "Cut attention heads that matter little out of a run."),
    "predict": ("holoshard.train.cli:predict", "Predict the pK of every complex of a data set."),
    "doctor": ("holoshard.train.cli:doctor", "Look at this machine and what is wrong with its settings."),
}

# The extra whose packages a module of ours may miss.
EXTRAS = {
    "cyclopts": "cli", "rich": "cli", "zarr": "zarr", "google_crc32c": "zarr",
    "gemmi": "ingest", "rdkit": "ingest", "biotite": "ingest", "isal": "ingest", "dask": "ingest",
    "distributed": "ingest", "polars": "ingest", "torch": "train", "safetensors": "train",
    "tensorboard": "train", "joblib": "cache", "matplotlib": "report",
}  # fmt: skip


def run(arguments: list[str]) -> Any:
    """Run one command and return its result, a mapping for ``--json`` or None."""
    try:
        import cyclopts

        app = cyclopts.App(
            name="holoshard",
            help="Structures in, shards out, batches to a model.",
            help_format="plaintext",
            help_formatter=HelpPages(),
            result_action="return_value",
            suppress_keyboard_interrupt=False,  # main() says how to go on
        )
        wanted = next((word for word in arguments if not word.startswith("-")), "")
        for name, (target, about) in COMMANDS.items():
            # Nothing is imported for the list of commands; a command's own page has its own words.
            app.command(target, name=name, **({} if name == wanted else {"help": about}))
        if wanted in COMMANDS:
            with uninterrupted():
                importlib.import_module(COMMANDS[wanted][0].partition(":")[0])
        try:
            return app(arguments, exit_on_error=False, print_error=False)
        except cyclopts.CycloptsError as error:
            raise UsageError(f"{error} See: holoshard {' '.join(arguments[:1])} --help") from error
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        raise MissingExtraError(package, EXTRAS[package]) from error


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C back until the end of the block: a C++ library stopped half-way through its import aborts
    the process.
    """
    told: list[int] = []
    try:
        before = signal.signal(signal.SIGINT, lambda number, _: told.append(number))
    except ValueError:  # signals are the main thread's
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if told:
        raise KeyboardInterrupt


def talk() -> None:
    """Let our own loggers speak to standard error; those of libraries keep to warnings."""
    log = logging.getLogger("holoshard")
    if not log.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(message)s"))
        log.addHandler(handler)
    log.setLevel(logging.INFO)


def main(arguments: list[str] | None = None) -> int:
    """Entry point; returns the exit code: 0 done, 1 the data is wrong, 2 the call is wrong."""
    arguments = sys.argv[1:] if arguments is None else arguments
    talk()
    as_json = "--json" in arguments
    code, result = 0, None
    try:
        result = run(arguments)
        sys.stdout.flush()  # here, where a reader who has gone is understood
    except BrokenPipeError:  # `holoshard info DIR | head`: whoever listened has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except Exception as error:
        # Our own errors have a code (the cache has a tree of its own); a full disk or a folder that
        # may not be written is the caller's to mend; anything else is a fault of ours.
        if not hasattr(error, "exit_code") and not isinstance(error, OSError):
            raise
        code, result = getattr(error, "exit_code", 2), {"error": str(error)}
        print(f"holoshard: {error}", file=sys.stderr)
        if "--debug" in arguments:
            traceback.print_exc()
    except KeyboardInterrupt:
        code, result = 130, {"error": "interrupted"}
        print("holoshard: interrupted; run the same command again to go on", file=sys.stderr)
    if isinstance(result, dict) and "exit_code" in result:
        code = result.pop("exit_code")
    if as_json:
        print(json.dumps({**(result or {}), "exit": code}, sort_keys=True), flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
