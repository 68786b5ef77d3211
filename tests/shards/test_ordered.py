from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from holoshard.shards.make.ordered import in_order, one_ahead


def test_results_come_in_the_order_of_the_items():
    with ThreadPoolExecutor(3) as pool:
        assert list(in_order(pool, lambda x: x * x, range(50), 3)) == [x * x for x in range(50)]


def test_the_next_item_is_made_while_one_is_in_use():
    begun = [threading.Event() for _ in range(3)]

    def items():
        for number, event in enumerate(begun):
            event.set()
            yield number

    made = one_ahead(items())
    assert next(made) == 0
    assert begun[1].wait(10)
    assert list(made) == [1, 2]


def test_an_error_comes_when_its_item_would():
    def items():
        yield 1
        raise ValueError("broken")

    made = one_ahead(items())
    assert next(made) == 1
    with pytest.raises(ValueError, match="broken"):
        next(made)


def test_whoever_leaves_early_leaves_no_thread():
    before = threading.active_count()
    made = one_ahead(iter(range(100)))
    assert next(made) == 0
    made.close()
    assert threading.active_count() == before
