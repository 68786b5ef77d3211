from __future__ import annotations

import gc

from toy import ToyOptions, process, toy_items

from holoshard.ingest.pool import PoolOptions, pool
from holoshard.ingest.task import Job, Task


def test_finished_tasks_are_forgotten(tmp_path):
    """A long run holds the tasks that run, not those that have ended."""
    items = toy_items(tmp_path / "in", {f"i{k:03d}": "keep" for k in range(60)})
    tasks = (Task(number, (item,), {}) for number, item in enumerate(items))
    del items
    job = Job(tmp_path, "run", process, None, ToyOptions(), "", 60.0)
    with pool(PoolOptions(workers=1)) as run_all:
        ended = [outcome.number for outcome in run_all(job, tasks)]
        gc.collect()
        held = [o for o in gc.get_objects() if type(o) is Task]
    assert sorted(ended) == list(range(60))
    assert len(held) <= 16
