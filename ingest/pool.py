"""Where tasks run: in processes of this machine, on a Dask cluster, or here, for debugging."""

from __future__ import annotations

import importlib
import itertools
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from ..shards.errors import DataError, HoloshardError, UsageError
from .interrupt import Interrupts, interruptible, quiet_tracker
from .journal import STRIKES
from .task import Job, Outcome, Task, run_task

RunAll = Callable[[Job, Iterator[Task]], Iterator[Outcome]]

LONGEST: Final = 1e6  # seconds; the alarm clock takes no more than some years
LEAST_MEMORY: Final = 128 << 20  # bytes; a worker that has only started has as much
AHEAD: Final = 2  # tasks submitted for each worker: one that runs and one that waits

# Memory is bounded by ending a process, never by writing to disk or waiting: an item that needs more than
# the bound is refused as crashed.
DASK: Final = {
    "distributed.scheduler.allowed-failures": 0,  # ours to count: ingest/journal.py
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": 0.95,
    "distributed.worker.daemon": True,
    # Messages kept for Dask's developers, with all they carry: a thousand tasks of some hundred items each,
    # for every worker, in the scheduler and again in the worker.
    "distributed.admin.low-level-log-length": 8,
    "distributed.diagnostics.nvml": False,
}


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """Where tasks run.

    Parameters
    ----------
    workers
        Processes on this machine; -1 for one a core, 0 for none: all in this process, without isolation or
        time limit.
    scheduler
        Address of a running Dask scheduler, whose workers see the same files; then --workers is unused.
    memory
        Most memory a worker may use; an item that needs more is refused as crashed.
    timeout
        Seconds of work that one item may take, or five times as long of waiting.
    """

    workers: int = -1
    scheduler: str = ""
    memory: str = "2GiB"
    timeout: float = 60.0

    def __post_init__(self) -> None:
        most = max(64, 16 * _cores())
        if not -1 <= self.workers <= most:
            raise UsageError(f"--workers is {self.workers}; expected -1 (one a core) to {most} here")
        if not 0 < self.timeout <= LONGEST:
            raise UsageError(f"--timeout is {self.timeout:g}; expected seconds above 0, at most {LONGEST:g}")


@contextmanager
def pool(options: PoolOptions) -> Iterator[RunAll]:
    """A function that runs tasks and yields what became of them, in the order in which they end."""
    if options.workers == 0 and not options.scheduler:
        yield _run_here
        return
    _check_memory(options.memory)
    quiet_tracker()
    with interruptible() as interrupts:
        untyped: Any = interrupts.shielded(lambda: importlib.import_module("distributed"))
        interrupts.raise_if_told()
        with _client(options, interrupts, untyped) as (client, n_workers):
            yield lambda job, tasks: _run_on(client, n_workers, job, tasks)


@contextmanager
def _client(options: PoolOptions, interrupts: Interrupts, untyped: Any) -> Iterator[tuple[Any, int]]:
    """A client of a scheduler, and how many workers that has (0: ask it)."""
    import dask

    with dask.config.set(DASK), _address(options, interrupts) as (address, n_workers):
        try:
            client = untyped.Client(address, set_as_default=False, timeout="30s")
        except (OSError, TimeoutError, ValueError) as error:
            raise UsageError(f"there is no Dask scheduler at {address}: {error}") from error
        with client:
            yield client, n_workers


def _check_memory(memory: str) -> None:
    from dask.utils import parse_bytes

    try:
        n_bytes = parse_bytes(memory)
    except (ValueError, OverflowError):
        n_bytes = 0
    if n_bytes < LEAST_MEMORY:
        raise UsageError(f"--memory is {memory!r}; expected a size such as 2GiB, at least 128MiB")


def _run_here(job: Job, tasks: Iterator[Task]) -> Iterator[Outcome]:
    job = replace(job, isolated=False)
    for task in tasks:
        yield run_task(job, task)


@contextmanager
def _address(options: PoolOptions, interrupts: Interrupts) -> Iterator[tuple[Any, int]]:
    """A scheduler and how many workers it has (0: ask it)."""
    if options.scheduler:
        yield options.scheduler, 0
        return
    import distributed

    untyped: Any = distributed
    n_workers = _cores() if options.workers < 0 else options.workers

    def make() -> Any:
        return untyped.LocalCluster(
            n_workers=n_workers, threads_per_worker=1, processes=True, memory_limit=options.memory,
            host="127.0.0.1", dashboard_address="127.0.0.1:0", worker_dashboard_address=None,
            scheduler_kwargs={"dashboard": False}, silence_logs=logging.CRITICAL,
        )  # fmt: skip

    with interrupts.shielded(make) as cluster:
        interrupts.raise_if_told()
        yield cluster, n_workers


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _run_on(client: Any, n_workers: int, job: Job, tasks: Iterator[Task]) -> Iterator[Outcome]:
    """Keep a window of tasks submitted; submit a task again if its worker died."""
    import distributed

    untyped: Any = distributed
    running: dict[str, Task] = {}
    attempts = Counter[int]()
    done = untyped.as_completed(loop=client.loop, with_results=True, raise_errors=False)

    def submit(task: Task) -> None:
        key = f"ingest-{job.run}-{task.number}-{attempts[task.number]}"
        attempts[task.number] += 1
        running[key] = task
        done.add(client.submit(run_task, job, task, key=key, pure=False))

    def fill() -> None:
        room = AHEAD * (n_workers or max(1, sum(client.nthreads().values()))) - len(running)
        for task in itertools.islice(tasks, max(0, room)):
            submit(task)

    fill()
    for future, result in done:
        task = running.pop(future.key)
        if future.status == "finished":
            yield result
        elif (
            isinstance(result[1], untyped.KilledWorker)
            and attempts[task.number] < STRIKES * len(task.items) + 8
        ):
            submit(task)
        else:
            raise _fault(result[1])
        fill()


def _fault(error: BaseException) -> BaseException:
    """A fault that is no item's own, such as a full disk."""
    if isinstance(error, HoloshardError):
        return error
    return DataError(
        f"a task failed: {type(error).__name__}: {error}; mend the cause and run the same command again"
    )
