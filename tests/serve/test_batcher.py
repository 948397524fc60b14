"""Turns, deadlines, refusals, faults; and that no answer goes to the wrong place."""

import threading
import time
from concurrent.futures import CancelledError

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xmcascade.serve.batcher import Batcher, Busy, Closed, Job, Late

SOON = 30.0


def upper(texts):
    return [text.upper() for text in texts]


def job(texts, question="upper", answer=upper, seconds=SOON, size=1):
    return Job(texts, [size] * len(texts), question, answer, time.monotonic() + seconds)


@pytest.fixture
def make():
    made = []

    def build(batch_tokens=8, queue_seconds=5.0, told=lambda *_: None):
        made.append(Batcher(batch_tokens, queue_seconds, told))
        return made[-1]

    yield build
    for own in made:
        own.close()


class Gate:
    """An answer that waits until it may go on."""

    def __init__(self):
        self.open, self.begun, self.batches = threading.Event(), threading.Event(), []

    def __call__(self, texts):
        self.batches.append(texts)
        self.begun.set()
        assert self.open.wait(SOON)
        return upper(texts)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.lists(st.integers(1, 9), min_size=1, max_size=12)), max_size=12
    )
)
def test_every_job_gets_its_own_answers(asked):
    batcher = Batcher(8, 5.0)
    answers = {"a": upper, "b": lambda texts: [text[::-1] for text in texts]}
    jobs = []
    for number, (question, sizes) in enumerate(asked):
        texts = [f"t{number}-{i}" for i in range(len(sizes))]
        own = Job(texts, sizes, question, answers[question], time.monotonic() + SOON)
        jobs.append(batcher.submit(own))
    for own in jobs:
        assert own.future.result(SOON) == answers[own.question](list(own.texts))
    batcher.close()
    assert batcher.waiting_tokens == 0
    assert batcher.n_waiting == 0


def test_on_an_idle_server_nothing_waits(make):
    own = make().submit(job(["a"]))
    assert own.future.result(SOON) == ["A"]
    assert own.timing.queue < 1
    assert own.timing.batch == 1


def test_what_gathers_meanwhile_is_answered_together(make):
    batcher, gate = make(batch_tokens=100), Gate()
    first = batcher.submit(job(["x"], answer=gate))
    assert gate.begun.wait(SOON)
    rest = [batcher.submit(job([f"y{i}"], answer=gate)) for i in range(5)]
    gate.open.set()
    assert [own.future.result(SOON) for own in [first, *rest]] == [["X"], *([f"Y{i}"] for i in range(5))]
    assert [len(batch) for batch in gate.batches] == [1, 5]
    assert rest[0].timing.batch == 5


def test_a_batch_is_bounded_by_tokens(make):
    batcher, gate = make(batch_tokens=8), Gate()
    first = batcher.submit(job(["x"], answer=gate))
    assert gate.begun.wait(SOON)
    rest = [batcher.submit(job([f"y{i}"], answer=gate, size=3)) for i in range(6)]
    gate.open.set()
    for own in [first, *rest]:
        own.future.result(SOON)
    assert max(len(batch) for batch in gate.batches) == 3  # 3 + 3 + 3: the last that begins below the bound


def test_a_text_larger_than_a_batch_is_answered(make):
    assert make(batch_tokens=8).submit(job(["a"], size=1000)).future.result(SOON) == ["A"]


def test_a_short_job_does_not_wait_for_all_of_a_long_one(make):
    batcher, gate, order = make(batch_tokens=4), Gate(), []
    first = batcher.submit(job(["x"], answer=gate))
    assert gate.begun.wait(SOON)
    long = batcher.submit(job([f"l{i}" for i in range(40)], answer=gate))
    short = batcher.submit(job(["s"], answer=gate))
    for own, name in ((long, "long"), (short, "short")):
        own.future.add_done_callback(lambda _, name=name: order.append(name))
    gate.open.set()
    assert long.future.result(SOON) == [f"L{i}" for i in range(40)]
    assert first.future.result(SOON) == ["X"]
    assert order == ["short", "long"]


def test_too_much_is_refused_at_once_with_how_long_it_would_take(make):
    batcher, gate = make(queue_seconds=2.0), Gate()
    batcher.submit(job(["a"])).future.result(SOON)
    batcher.done = 10.0, 1.0
    batcher.submit(job(["x"], answer=gate))
    assert gate.begun.wait(SOON)
    waiting = batcher.submit(job(["y"], answer=gate, size=30))  # nobody waits yet: it is taken
    with pytest.raises(Busy) as busy:
        batcher.submit(job(["z"], answer=gate))
    assert busy.value.seconds == pytest.approx(3.0)
    gate.open.set()
    assert waiting.future.result(SOON) == ["Y"]


def test_how_long_it_takes_is_told_by_what_took_long(make):
    batcher = make()

    def slow(texts):
        time.sleep(0.02)
        return upper(texts)

    for _ in range(10):
        batcher.submit(job(["a"], answer=slow)).future.result(SOON)
    big = job(["b"] * 100, answer=slow, size=50)
    batcher.batch_tokens = 5000
    batcher.submit(big).future.result(SOON)
    batcher.waiting_tokens = 5000
    assert batcher.wait() < 0.5  # as many again take about 0.02 s; by batches alone it would be 20
    batcher.waiting_tokens = 0


def test_what_would_come_too_late_is_not_begun(make):
    batcher, gate = make(), Gate()
    first = batcher.submit(job(["x"], answer=gate))
    assert gate.begun.wait(SOON)
    late = batcher.submit(job(["y"], answer=gate, seconds=0.01))
    time.sleep(0.05)
    gate.open.set()
    with pytest.raises(Late):
        late.future.result(SOON)
    first.future.result(SOON)
    assert gate.batches == [["x"]]


def test_what_nobody_waits_for_is_not_begun(make):
    batcher, gate = make(), Gate()
    first = batcher.submit(job(["x"], answer=gate))
    assert gate.begun.wait(SOON)
    gone = batcher.submit(job(["y"], answer=gate))
    assert gone.future.cancel()
    gate.open.set()
    first.future.result(SOON)
    assert batcher.submit(job(["z"])).future.result(SOON) == ["Z"]
    with pytest.raises(CancelledError):
        gone.future.result(SOON)
    assert gate.batches == [["x"]]


def test_a_fault_reaches_those_it_concerns_and_nobody_else(make):
    batcher, gate = make(batch_tokens=100), Gate()

    def broken(texts):
        raise ZeroDivisionError

    first = batcher.submit(job(["x"], answer=gate))
    assert gate.begun.wait(SOON)
    bad = batcher.submit(job(["b"] * 300, question="broken", answer=broken))
    good = batcher.submit(job(["g"]))
    gate.open.set()
    with pytest.raises(ZeroDivisionError):
        bad.future.result(SOON)
    assert good.future.result(SOON) == ["G"]
    assert first.future.result(SOON) == ["X"]
    assert batcher.waiting_tokens == 0


def test_closing_answers_what_is_waiting_and_takes_no_more(make):
    batcher, gate = make(), Gate()
    jobs = [batcher.submit(job(["x"], answer=gate)) for _ in range(20)]
    threading.Timer(0.05, gate.open.set).start()
    batcher.close()
    assert all(own.future.done() for own in jobs)
    with pytest.raises(Closed):
        batcher.submit(job(["y"]))


def test_batches_are_told(make):
    told = []
    batcher = make(told=lambda *facts: told.append(facts))
    batcher.submit(job(["a", "b"], size=3)).future.result(SOON)
    batcher.close()
    assert [facts[:2] for facts in told] == [(2, 6)]


def test_a_call_waits_its_turn_however_much_is_waiting_and_says_nothing_of_the_speed(make):
    told, gate = [], Gate()
    batcher = make(queue_seconds=0.001, told=lambda *numbers: told.append(numbers))
    batcher.submit(job(["a"])).future.result(SOON)
    first, speed = batcher.submit(job(["b"], "gate", gate)), batcher.done
    assert gate.begun.wait(SOON)
    batcher.submit(job(["c"] * 100))
    batcher.done = speed = 1.0, 1000.0  # so slow that nothing more is taken
    with pytest.raises(Busy):
        batcher.submit(job(["d"]))
    found = []
    caller = threading.Thread(target=lambda: found.append(batcher.call(lambda: threading.get_ident())))
    caller.start()
    assert not found
    gate.open.set()
    caller.join(SOON)
    assert found == [batcher._thread.ident]
    assert first.future.result(SOON) == ["B"]
    batcher.call(lambda: time.sleep(0.05))
    told.clear()
    before = batcher.done
    batcher.call(lambda: time.sleep(0.05))
    assert batcher.done == before != speed and not told


def test_a_call_hands_on_what_goes_wrong(make):
    batcher = make()
    with pytest.raises(ZeroDivisionError):
        batcher.call(lambda: 1 / 0)
    assert batcher.call(lambda: "fine") == "fine"
    batcher.close()
    with pytest.raises(Closed):
        batcher.call(lambda: None)
