from __future__ import annotations

import math

import pytest

from holoshard.train.record import Record, read_record


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_curves_for_tensorboard_are_those_of_the_lines(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with Record(tmp_path, tensorboard=True) as record:
        for step in range(1, 6):
            record.write(step=step, loss=1.0 / step, grad_norm=math.inf if step == 3 else 2.0)
        record.write(step=5, eval={"split": "valid", "loss": 0.75, "rmse": 0.5}, best=True)
    board = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert {s.step: s.value for s in board.Scalars("loss")} == pytest.approx({s: 1 / s for s in range(1, 6)})
    assert [s.step for s in board.Scalars("grad_norm")] == [1, 2, 4, 5]
    assert [s.value for s in board.Scalars("valid/rmse")] == [0.5]
    assert [s.value for s in board.Scalars("valid/loss")] == [0.75]
    lines = read_record(tmp_path)
    assert lines[2]["grad_norm"] is None


def test_processes_that_do_not_write_leave_nothing(tmp_path):
    with Record(tmp_path, writes=False, tensorboard=True) as record:
        record.write(step=1, loss=1.0)
    assert not list(tmp_path.iterdir())
