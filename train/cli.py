"""The commands of this room: train, plan, eval, predict, doctor."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from ..shards.console import Output
from ..shards.errors import UsageError
from .configfile import load_config
from .judge.atomic import refuse_file
from .launch import is_launched, launch
from .limits import PROCESSES

# Read by OpenMP when torch is imported, which the commands do: threads that wait for each other by turning
# in circles make a step fifty times slower as soon as anything else wants their cores.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

log = logging.getLogger("holoshard")
RESULT = "result.json"  # in the run folder: what the command returns
HERE = 1024  # processes that train starts on one machine
OUTPUT = Output()


def train(
    config: Annotated[Path | None, Parameter(allow_leading_hyphen=True)] = None,
    *settings: Annotated[str, Parameter(allow_leading_hyphen=True, show=False)],
    out: Path | None = None,
    nodes: int = 1,
    per_node: int = 1,
    keys: Annotated[bool, Parameter(negative="")] = False,
    output: Annotated[Output, Parameter(name="*")] = OUTPUT,
) -> dict[str, Any]:
    """Train a model as a TOML file says, or go on where the run in --out stopped.

    Every key of the file can be given as --table.key VALUE, which goes before the file; --keys lists them.
    The file that is written to the run's folder, config.toml, has them all.

    Examples::
        holoshard train configs/sample.toml --data.path data/shards --out runs/first

        holoshard train configs/real.toml --data.inputs ligand --seed 1 --out runs/ligand-1

        holoshard train configs/sample.toml --nodes 4

        holoshard train --keys

    Parameters
    ----------
    config
        A TOML file such as those in configs/.
    out
        The run's folder: checkpoints, metrics, the best model. runs/NAME for configs/NAME.toml if not given.
    nodes
        Start so many processes here, each as one node.
    per_node
        Processes on each node.
    keys
        List every key of a configuration with its default and meaning, and do nothing else.
    """
    if keys:
        from .keys import keys as all_keys
        from .keys import listing

        print(listing())
        return {"keys": {key.name: key.default for key in all_keys()}}
    config = named(config)
    checked = load_config(config, settings)
    folder = out if out is not None else Path("runs") / config.stem
    refuse_file(folder)
    size = nodes * per_node
    if nodes < 1 or per_node < 1:
        raise UsageError(f"--nodes {nodes} --per-node {per_node}: expected at least 1 of each")
    if size > HERE:
        raise UsageError(f"--nodes {nodes} --per-node {per_node}: {size} processes, expected at most {HERE}")
    if size > 1 and not is_launched():
        from .parallel.mesh import axis_sizes
        from .topology import read_racks

        axis_sizes(checked, size)  # what cannot work is refused before anything starts
        if checked.parallel.topology:
            read_racks(checked.parallel.topology)
        log.info("no cluster here: %d processes on this machine stand for %d nodes", size, nodes)
        (folder / RESULT).unlink(missing_ok=True)
        code = launch(["train", str(config), *settings, "--out", str(folder)], nodes, per_node)
        result = json.loads((folder / RESULT).read_text()) if (folder / RESULT).is_file() else {}
        return {**result, "exit_code": code}
    return run_here(checked, folder)


def named(config: Path | None) -> Path:
    """The configuration, unless there is none or a key took its place."""
    if config is None or str(config).startswith("--"):
        before = f" before {config}" if config is not None else ""
        raise UsageError(f"no configuration is named{before}; start from one of configs/*.toml")
    return config


def run_here(config: Any, folder: Path) -> dict[str, Any]:
    """Train in this process, alone or as one of many."""
    from .judge.atomic import write_text
    from .parallel.mesh import start, stop
    from .relayout import resumed, train_through

    if int(os.environ.get("RANK", 0)) > 0:
        log.setLevel(logging.WARNING)  # one process speaks; the others only warn
    config = resumed(config, folder)
    world = start(config)
    try:
        result = train_through(config, folder, world)
        if world.is_first:
            write_text(folder / RESULT, json.dumps(result, indent=1) + "\n")
            rmse = "" if result["best_rmse"] is None else f", validation RMSE {result['best_rmse']:.3f}"
            if result["outcome"] == "preempted":
                log.info("told to stop: saved; the same command goes on from here")
            print(f"{result['outcome']}: step {result['step']}, best {result['best_step']}{rmse}: {folder}")
        return result
    finally:
        stop()


def evaluate(
    run: Path,
    *,
    split: str = "test",
    dataset: Path | None = None,
    baselines: bool = False,
    against: list[Path] | None = None,
    report: bool = True,
    output: Annotated[Output, Parameter(name="*")] = OUTPUT,
) -> dict[str, Any]:
    """Judge a trained model on a split: figures with intervals, predictions as CSV, a report as HTML.

    Examples::
        holoshard eval runs/first

        holoshard eval runs/first --split valid --baselines

        holoshard eval runs/first --against runs/ligand-1

    Parameters
    ----------
    run
        Folder of a run.
    split
        Which complexes to judge on.
    dataset
        Judge on another data set than the one that was trained on.
    baselines
        Fit simpler predictors on the training split, and compare with them.
    against
        Other runs that were evaluated on the same split: differences pair by pair, on the same resamples.
    report
        Write report.html into the run's folder.
    """
    from .judge.evaluate import evaluate as judge
    from .judge.evaluate import table_of

    result = judge(run, split, dataset, baselines=baselines, against=against or ())
    print(table_of(result))
    if report:
        from .judge.report import write_report

        result["report"] = str(write_report(run))
        print(f"report: {result['report']}")
    return result


def predict(
    run: Path,
    dataset: Path,
    *,
    out: Path,
    split: str | None = None,
    device: str = "cpu",
    output: Annotated[Output, Parameter(name="*")] = OUTPUT,
) -> dict[str, Any]:
    """Predict the pK of every complex of a data set, to a CSV file.

    New structures go through `holoshard ingest` first; the folder that it writes is enough. The columns are
    id and pk; from a model with model.uncertainty also low and high, a 95 % interval.

    Examples::
        holoshard predict runs/first data/shards --split test --out predictions.csv

        holoshard ingest new-structures/ --out data/new

        holoshard predict runs/first data/new --out predictions.csv

    Parameters
    ----------
    run
        Folder of a run, or a model file such as its best.safetensors.
    dataset
        Data set folder, the --out folder of ingest, a folder of parts, or a single part or shard.
    out
        The CSV file to write.
    split
        Only the complexes of this split.
    device
        cpu or cuda.
    """
    from .answers import write_answers
    from .predictor import Predictor

    predictor = Predictor.load(run, device)
    n = write_answers(predictor, dataset, out, split)
    print(f"{n} predictions: {out}")
    if predictor.synthetic:
        log.warning(
            "%s learned from synthetic labels (%.0f %% of them): these predictions say nothing about real "
            "molecules", predictor.path, 100 * predictor.synthetic,
        )  # fmt: skip
    return {"n": n, "out": str(out), "step": predictor.step, "synthetic_labels": predictor.synthetic}


def prune(
    run: Path,
    *,
    out: Path,
    keep: float = 0.7,
    by: Literal["norm", "taylor", "random", "reversed", "gates"] = "norm",
    complexes: int = 512,
    seed: int = 0,
    multiple: int = 1,
    output: Annotated[Output, Parameter(name="*")] = OUTPUT,
) -> dict[str, Any]:
    """Cut the least important attention heads out of a run's newest checkpoint, as a new run.

    Parameters and optimizer state lose the heads' rows and columns; layers may end with different numbers of
    heads, at least one. `holoshard train` on the new folder trains on from the same step. The report is in
    its pruning.json: parameters, operations, step time and quality, each before and after.

    Examples::
        holoshard prune runs/first --keep 0.7 --out runs/pruned

        holoshard train runs/pruned/config.toml --run.epochs 12 --out runs/pruned

    Parameters
    ----------
    run
        Folder of a run that saved a checkpoint.
    out
        A new folder for the pruned run.
    keep
        Share of all heads that stay.
    by
        norm: heads that put out most stay; taylor: heads that the loss depends on most; random and reversed
        are controls; gates: those that [sparsity] left open in training, whatever --keep says.
    complexes
        Training complexes to look at.
    seed
        Of random.
    multiple
        Keep a multiple of so many heads in each layer: parallel.tensor must divide them.
    """
    from .prune.prune import prune as cut

    report = cut(run, out, keep=keep, by=by, complexes=complexes, seed=seed, multiple=multiple)
    print(f"heads {report['heads_before']} -> {report['heads_after']}: {out}")
    for name in ("parameters", "flops", "step_seconds", "rmse"):
        if name in report and None not in report[name]:
            before, after = report[name]
            print(f"{name:<12} {before:.4g} -> {after:.4g} ({after / before - 1:+.1%})")
    return report


def plan(
    config: Annotated[Path | None, Parameter(allow_leading_hyphen=True)] = None,
    *settings: Annotated[str, Parameter(allow_leading_hyphen=True, show=False)],
    nodes: int = 1,
    gpus_per_node: int = 8,
    memory: str = "80GiB",
    tflops: float = 400.0,
    link: float = 400.0,
    network: float = 40.0,
    write: bool = True,
    margin: float = 0.0,
    output: Annotated[Output, Parameter(name="*")] = OUTPUT,
) -> dict[str, Any]:
    """Say what memory and traffic each way of spreading a model costs, and which [parallel] table to take.

    Nothing is allocated or started: one process goes through a step with tensors that have only shapes.

    Examples::
        holoshard plan configs/12.8b.toml --nodes 16 --gpus-per-node 8 --memory 48GiB

        holoshard plan configs/1b.toml --nodes 2 --data.batch_size 1024 --json

        holoshard plan runs/first --nodes 4

    Parameters
    ----------
    config
        A TOML file such as those in configs/; keys can be given as for train. Or the folder of a run: then
        its measured speed counts instead of --tflops, and the chosen layout is written to its config.toml, so
        that `holoshard train runs/first/config.toml --out runs/first` goes on in it.
    nodes
        Machines.
    gpus_per_node
        Accelerators in each.
    memory
        Of an accelerator, such as 48GiB.
    tflops
        Billions of operations that an accelerator does in a millisecond on matrices.
    link
        GB that an accelerator sends in a second within its node.
    network
        GB that an accelerator sends in a second to other nodes.
    write
        Write the chosen layout to a run's config.toml; --no-write only says it.
    margin
        A run keeps its layout unless another one's step is shorter by this share, such as 0.1.
    """
    from ..cache.errors import CacheError
    from ..cache.tier import parse_size
    from .plan.advise import plan as advise
    from .plan.advise import text_of
    from .plan.strategies import Cluster

    config = named(config)
    if nodes < 1 or gpus_per_node < 1:
        raise UsageError(f"--nodes {nodes} --gpus-per-node {gpus_per_node}: expected at least 1 of each")
    if nodes * gpus_per_node > PROCESSES:
        raise UsageError(
            f"--nodes {nodes} --gpus-per-node {gpus_per_node}: expected at most {PROCESSES} processes"
        )
    for option, value in (("tflops", tflops), ("link", link), ("network", network)):
        if not 1e-6 <= value <= 1e12:  # neither is NaN
            raise UsageError(f"--{option} {value}: expected a number above 0, from 1e-6 to 1e12")
    try:
        size = parse_size(memory)
    except CacheError as error:
        raise UsageError(f"--memory {memory}: {error}") from error
    cluster = Cluster(nodes, gpus_per_node, size, flops=tflops * 1e12, link=link * 1e9, network=network * 1e9)
    if config.is_dir():
        from .plan.again import plan_again

        if not 0 <= margin < 1:
            raise UsageError(f"--margin {margin}: expected a share from 0 to less than 1")
        made = plan_again(config, cluster, write, margin)
        took = made["measured"]
        print(f"measured: {took['step_s']:.3g} s a step of {took['processes']} processes, each "
              f"{took['flops'] / 1e12:.3g} Tflop/s while it computes")  # fmt: skip
    else:
        checked = load_config(config, settings)
        made = advise(checked, cluster)
        if checked.parallel.topology:
            from .levels import of_config, text_of_levels

            made["levels"] = of_config(checked, gpus_per_node)
            print(text_of_levels(made["levels"]), end="\n\n")
    print(text_of(made))
    return {**made, "exit_code": int(made["recommended"] is None)}


def doctor(
    *,
    output: Annotated[Output, Parameter(name="*")] = OUTPUT,
) -> dict[str, Any]:
    """Look at this machine: versions, devices, settings of NCCL and the allocator, and what is wrong.

    Examples::
        holoshard doctor

        holoshard doctor --json
    """
    from .doctor import examine, text_of

    result = examine()
    print(text_of(result))
    return {**result, "exit_code": int(any(f["level"] == "error" for f in result["findings"]))}
