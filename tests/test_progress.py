"""Progress: nothing for short work, log lines without a terminal, a bar with one."""

import io
import logging
import signal

import pytest
from rich.console import Console

from xmcascade import progress
from xmcascade.progress import listening, patient, set_console, tracker


@pytest.fixture
def clock(monkeypatch):
    """Time that passes only when told to."""

    class Clock:
        now = 100.0

        def monotonic(self):
            return self.now

        time = monotonic

    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


@pytest.fixture
def console():
    out = Console(file=io.StringIO(), force_terminal=True, width=100)
    set_console(out)
    yield out
    set_console(None)


def test_short_work_logs_nothing(clock, caplog):
    with caplog.at_level(logging.INFO, "xmcascade"), tracker("reading") as seen:
        for _ in range(50):
            clock.now += 0.1
            seen.advance()
    assert caplog.messages == []


def test_long_work_logs_a_line_now_and_then(clock, caplog):
    with caplog.at_level(logging.INFO, "xmcascade"), tracker("reading", 4000, "bytes") as seen:
        for _ in range(30):
            clock.now += 1
            seen.advance(100)
    assert caplog.messages == [
        "reading: 1,000 of 4,000 bytes (100/s, 30 s left)",
        "reading: 2,000 of 4,000 bytes (100/s, 20 s left)",
        "reading: 3,000 of 4,000 bytes (100/s, 10 s left)",
    ]


def test_a_line_without_a_total_says_the_rate(clock, caplog):
    with caplog.at_level(logging.INFO, "xmcascade"), tracker("reading") as seen:
        clock.now += 20
        seen.advance(100)
    assert caplog.messages == ["reading: 100 documents (5/s)"]


def test_a_terminal_shows_a_bar_and_no_log_lines(clock, caplog, console):
    with caplog.at_level(logging.INFO, "xmcascade"), tracker("reading", 40) as seen:
        for _ in range(40):
            clock.now += 1
            seen.advance()
    shown = console.file.getvalue()
    assert "reading" in shown
    assert "40/40" in shown
    assert caplog.messages == []


def test_a_terminal_shows_nothing_for_short_work(clock, console):
    with tracker("reading", 40) as seen:
        seen.advance(40)
    assert console.file.getvalue() == ""


def test_a_bar_is_not_drawn_for_every_unit(clock, console):
    with tracker("reading", 10_000) as seen:
        clock.now += 2
        seen.advance()
        drawn = []
        seen._bar.update = lambda task, completed, beside="": drawn.append(completed)
        for _ in range(1000):
            clock.now += 0.001
            seen.advance()
    assert 5 <= len(drawn) <= 15


def test_a_bar_is_closed_when_the_work_fails(clock, console):
    with pytest.raises(KeyError), tracker("reading", 4) as seen:
        clock.now += 2
        seen.advance()
        raise KeyError
    assert not seen._bar.live.is_started


def test_facts_stand_beside(clock, caplog):
    with caplog.at_level(logging.INFO, "xmcascade"), tracker("training", 100) as seen:
        clock.now += 20
        seen.advance(40, {"loss": [0.5, 0.25], "P@1": 71.5})
    assert caplog.messages == ["training: 40 of 100 documents (2/s, 30 s left), loss 0.5 0.25, P@1 71.5"]


def test_what_an_earlier_run_has_done_does_not_count_for_the_pace(clock, caplog):
    with caplog.at_level(logging.INFO, "xmcascade"), tracker("training", 100) as seen:
        seen.skip(60)
        clock.now += 20
        seen.advance(20)
    assert caplog.messages == ["training: 80 of 100 documents (1/s, 20 s left)"]


def test_listeners_hear_once_a_second(clock):
    heard = []
    with listening(heard.append), tracker("reading", 100) as seen:
        for _ in range(50):
            clock.now += 0.1
            seen.advance(1, {"loss": 0.5})
    assert len(heard) in (4, 5)
    assert heard[-1]["event"] == "progress" and heard[-1]["title"] == "reading"
    assert heard[-1]["per_second"] == pytest.approx(10) and heard[-1]["loss"] == 0.5
    with tracker("silence") as seen:
        clock.now += 10
        seen.advance()
    assert len(heard) <= 5


def test_ctrl_c_waits_for_a_good_moment():
    done = []
    with pytest.raises(KeyboardInterrupt), patient() as asked:
        assert not asked()
        signal.raise_signal(signal.SIGINT)
        assert asked()
        done.append("what was begun")
    assert done
    with pytest.raises(KeyboardInterrupt), patient():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        done.append("never")
    assert len(done) == 1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_that_means_something_else_is_left_alone():
    heard = []
    before = signal.signal(signal.SIGINT, lambda *_: heard.append(1))
    try:
        with patient() as asked:
            signal.raise_signal(signal.SIGINT)
            assert not asked()
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == [1]
