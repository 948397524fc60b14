"""Threads: order, errors, and who decides how many."""

import os
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xmcascade.errors import SettingError
from xmcascade.kernels.parallel import blocks, run, thread_count


@given(n=st.integers(0, 50), size=st.integers(1, 60))
def test_blocks_cover_all_once(n, size):
    cut = blocks(n, size)
    assert [i for lo, hi in cut for i in range(lo, hi)] == list(range(n))
    assert all(0 < hi - lo <= size for lo, hi in cut)


@pytest.mark.parametrize("threads", [1, 2, 8, None])
def test_results_come_in_order(threads):
    def slow_first(i):
        time.sleep(0.01 if i == 0 else 0)
        return i * i

    assert list(run(slow_first, range(20), threads)) == [i * i for i in range(20)]
    assert list(run(slow_first, [], threads)) == []


def test_work_is_shared_by_threads():
    meeting = threading.Barrier(2, timeout=20)  # passes only when two are at work at once
    assert len(list(run(lambda _: meeting.wait(), range(2), threads=2))) == 2


@pytest.mark.parametrize("threads", [1, 2])
def test_an_error_comes_through_and_stops_the_rest(threads):
    begun = []

    def work(i):
        begun.append(i)
        if i == 3:
            raise ZeroDivisionError(i)
        time.sleep(0.002)

    with pytest.raises(ZeroDivisionError):
        list(run(work, range(500), threads))
    assert len(begun) < 500


def test_a_reader_that_stops_leaves_no_thread_behind():
    before = threading.active_count()
    results = run(abs, range(100), threads=4)
    assert next(results) == 0
    results.close()
    assert threading.active_count() == before


def test_the_argument_goes_before_the_environment(monkeypatch):
    monkeypatch.setenv("XMCASCADE_THREADS", "3")
    assert (thread_count(), thread_count(2)) == (3, 2)
    monkeypatch.setenv("XMCASCADE_THREADS", "")
    assert 1 <= thread_count() <= (os.cpu_count() or 1)


@pytest.mark.parametrize("asked", ["0", "-1", "two", "1.5", " "])
def test_a_bad_environment_is_refused_by_name(monkeypatch, asked):
    monkeypatch.setenv("XMCASCADE_THREADS", asked)
    with pytest.raises(SettingError, match=r"threads|XMCASCADE_THREADS"):
        thread_count()


@pytest.mark.parametrize("threads", [0, -1, 1.5, "2", True, float("nan")])
def test_a_bad_number_is_refused_by_name(threads):
    with pytest.raises(SettingError, match=r"threads is"):
        thread_count(threads)
