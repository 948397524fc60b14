"""What a server lets anybody ask of it: every bound is a named constant here, and can be set.

A request beyond a bound is answered at once, with a status and a sentence: 413 a body that is too large, 422
anything else that is too much or not understood, 429 more than can be answered in time, 504 not answered in
time. Nothing is cut silently.
"""

from __future__ import annotations

from dataclasses import dataclass

from xmcascade.settings import Settings

__all__ = ["Limits"]

BODY_BYTES = 4 << 20  # of a request, really counted
TEXTS = 256  # of a request
TEXT_CHARACTERS = 100_000  # of a text
LABELS = 100  # k
ALLOWED_LABELS = 10_000  # of a request
EXPLAINED_TEXTS, EXPLAINED_LABELS = 8, 20  # of a request: explaining takes many times what predicting takes
FOUND_LABELS = 100  # of a search
CHILDREN = 500  # of a branch of the tree, at a time
IN_FLIGHT = 512  # requests that are being answered
QUEUE_SECONDS = 5.0  # that a request may wait for its turn, by what the server has been able to do lately
DEADLINE_SECONDS = 30.0  # from the first byte of a request to its answer
BODY_SECONDS = 10.0  # for a client to send its request
BATCH_TOKENS = 1024  # texts of several requests are answered together, up to about so many tokens
DRAIN_SECONDS = 1.0  # after SIGTERM, in which a balancer can see that the server is not ready any more
SESSION_SECONDS = 12 * 3600.0  # that a browser stays logged in


@dataclass(frozen=True, kw_only=True)
class Limits(Settings):
    """The bounds of a server.

    >>> Limits(texts=0)
    Traceback (most recent call last):
    ...
    xmcascade.errors.SettingError: texts is 0. Remedy: allowed: above 0
    """

    body_bytes: int = BODY_BYTES
    texts: int = TEXTS
    text_characters: int = TEXT_CHARACTERS
    labels: int = LABELS
    allowed_labels: int = ALLOWED_LABELS
    explained_texts: int = EXPLAINED_TEXTS
    explained_labels: int = EXPLAINED_LABELS
    found_labels: int = FOUND_LABELS
    children: int = CHILDREN
    in_flight: int = IN_FLIGHT
    queue_seconds: float = QUEUE_SECONDS
    deadline_seconds: float = DEADLINE_SECONDS
    body_seconds: float = BODY_SECONDS
    batch_tokens: int = BATCH_TOKENS
    drain_seconds: float = DRAIN_SECONDS
    session_seconds: float = SESSION_SECONDS

    def check(self) -> None:
        """Refuse values out of range."""
        for name, value in self.to_dict().items():
            if name != "drain_seconds":
                self.require(value > 0, name, "above 0")
        self.require(self.drain_seconds >= 0, "drain_seconds", "0 or more")
