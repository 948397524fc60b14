"""Requests take turns: their texts are answered together, in batches of about equal work.

One thread answers, with all cores. While it is busy, requests gather, and the next batch takes some of each:
a long one goes to the back of the queue with what is left of it, so a short one never waits for all of it.
On an idle server nothing waits. What could not be answered in time is refused at once, by how fast the
server has been lately.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Batcher", "Busy", "Closed", "Job", "Late", "Timing"]

SHARE = 4  # a request gets at most this part of a batch, one text at least, while others wait
NICE = 5  # of the thread that answers, and of those it starts
MEMORY = 0.8  # how much of what is known of the speed stays after a batch


class Busy(Exception):
    """Too much is waiting."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the server is busy for about {seconds:.1f} s")
        self.seconds = seconds


class Late(Exception):
    """The answer would come too late."""


class Closed(Exception):
    """No more is taken."""


@dataclass
class Timing:
    """Seconds of a job, and the texts that were answered together with its last."""

    queue: float = 0.0
    work: float = 0.0
    batch: int = 0


@dataclass(eq=False)
class Job:
    """The texts of one request; jobs with the same question may be answered in one call."""

    texts: Sequence[str]
    sizes: Sequence[int]
    """Of each text, about how many tokens it has."""
    question: Hashable
    answer: Callable[[list[str]], Sequence[Any]]
    """Answers texts, one each; the same for all jobs with the same question."""
    deadline: float
    """On the clock of time.monotonic."""
    future: Future[list[Any]] = field(default_factory=Future)
    timing: Timing = field(default_factory=Timing)
    begun: float = field(default_factory=time.monotonic)
    answers: list[Any] = field(default_factory=list)
    taken: int = 0
    """Texts that are answered or in a batch."""

    @property
    def left(self) -> int:
        """Tokens that are not in any batch yet."""
        return sum(self.sizes[self.taken :])

    def take(self, most: int) -> tuple[list[str], int]:
        """The next texts of at most so many tokens, one text at least; and their tokens."""
        first, total = self.taken, 0
        while self.taken < len(self.texts) and (
            self.taken == first or total + self.sizes[self.taken] <= most
        ):
            total += self.sizes[self.taken]
            self.taken += 1
        return list(self.texts[first : self.taken]), total


class Batcher:
    """A queue with a thread that answers.

    >>> batcher = Batcher(batch_tokens=100, queue_seconds=5.0)
    >>> shout = lambda texts: [text.upper() for text in texts]
    >>> job = batcher.submit(Job(["a", "b"], [1, 1], "shout", shout, time.monotonic() + 5))
    >>> job.future.result()
    ['A', 'B']
    >>> batcher.close()
    """

    def __init__(
        self,
        batch_tokens: int,
        queue_seconds: float,
        told: Callable[[int, int, float], None] = lambda texts, tokens, seconds: None,
    ) -> None:
        """told: is called after each batch with its texts, tokens and seconds."""
        self.batch_tokens, self.queue_seconds, self.told = batch_tokens, queue_seconds, told
        self.waiting_tokens = 0
        self.done = 0.0, 0.0
        """Tokens and seconds of batches, lately: later ones count more."""
        self._jobs: deque[Job] = deque()
        self._change = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="xmcascade-batcher", daemon=True)
        self._thread.start()

    @property
    def n_waiting(self) -> int:
        """Requests whose texts are not all in a batch."""
        return len(self._jobs)

    def wait(self) -> float:
        """Seconds until one more would have its turn, about."""
        tokens, seconds = self.done
        return self.waiting_tokens * seconds / tokens if tokens else 0.0

    def check(self) -> None:
        """Raise Busy when one more would wait too long."""
        if self._jobs and (wait := self.wait()) > self.queue_seconds:
            raise Busy(wait)

    def submit(self, job: Job) -> Job:
        """Queue a job, or raise Busy; its future holds the answers, or Late."""
        self._queue(job, self.check)
        return job

    def _queue(self, job: Job, check: Callable[[], None] = lambda: None) -> None:
        with self._change:
            if self._closed:
                raise Closed
            check()
            self._jobs.append(job)
            self.waiting_tokens += job.left
            self._change.notify()

    def call(self, work: Callable[[], Any]) -> Any:
        """Do something in the thread that answers, when its turn comes, however much is waiting.

        >>> batcher = Batcher(batch_tokens=100, queue_seconds=5.0)
        >>> batcher.call(lambda: threading.current_thread().name)
        'xmcascade-batcher'
        >>> batcher.close()
        """
        job = Job([""], [0], object(), lambda _: [work()], math.inf)
        self._queue(job)
        return job.future.result()[0]

    def close(self) -> None:
        """Answer what is waiting, and stop."""
        with self._change:
            self._closed = True
            self._change.notify()
        self._thread.join()

    def _run(self) -> None:
        with suppress(
            AttributeError, OSError
        ):  # who comes is heard while all cores work; not on every system
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
        while (batch := self._next()) is not None:
            for question in {job.question: None for job, _, _ in batch}:
                self._answer([own for own in batch if own[0].question == question])

    def _next(self) -> list[tuple[Job, list[str], int]] | None:
        """Parts of jobs for one batch; None: no more will come."""
        with self._change:
            while not self._jobs:
                if self._closed:
                    return None
                self._change.wait()
            return list(self._gathered(time.monotonic()))

    def _gathered(self, now: float) -> Iterator[tuple[Job, list[str], int]]:
        room, again, alone = self.batch_tokens, deque[Job](), len(self._jobs) == 1
        while self._jobs and room > 0:
            job = self._jobs.popleft()
            if job.future.cancelled() or now > job.deadline:
                self.waiting_tokens -= job.left
                _settle(job, Late())
                continue
            if not job.taken:
                job.timing.queue = now - job.begun
            texts, tokens = job.take(room if alone else min(room, self.batch_tokens // SHARE))
            self.waiting_tokens -= tokens
            room -= tokens
            if job.taken < len(job.texts):
                again.append(job)
            yield job, texts, tokens
        self._jobs.extend(again)

    def _answer(self, parts: list[tuple[Job, list[str], int]]) -> None:
        texts = [text for _, own, _ in parts for text in own]
        tokens, start = sum(own for _, _, own in parts), time.monotonic()
        try:
            answers = parts[0][0].answer(texts)
        except BaseException as error:  # a fault in one batch must not stop the thread
            for job, _, _ in parts:
                self._forget(job)
                _settle(job, error)
            return
        seconds, at = time.monotonic() - start, 0
        if tokens:  # what `call` does has none, and says nothing of the speed
            self.done = MEMORY * self.done[0] + tokens, MEMORY * self.done[1] + seconds
            self.told(len(texts), tokens, seconds)
        for job, own, _ in parts:
            job.answers.extend(answers[at : at + len(own)])
            at += len(own)
            job.timing.work += seconds
            job.timing.batch = len(texts)
            if len(job.answers) == len(job.texts):
                _settle(job)

    def _forget(self, job: Job) -> None:
        """Take what is left of a job out of the queue."""
        with self._change:
            if job in self._jobs:
                self._jobs.remove(job)
                self.waiting_tokens -= job.left


def _settle(job: Job, error: BaseException | None = None) -> None:
    """Hand over the answers, or say why there are none; who asked may have gone meanwhile."""
    with suppress(InvalidStateError):
        if error is None:
            job.future.set_result(job.answers)
        else:
            job.future.set_exception(error)
