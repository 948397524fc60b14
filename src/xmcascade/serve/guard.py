"""What stands before every route: identity, keys, hosts, sizes, speed, counting, and a line in the log.

Plain ASGI, so that a body is counted as it arrives. The text of a request is never logged.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import math
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from starlette.datastructures import Headers, MutableHeaders

from xmcascade.serve.faults import Fault, answer_of
from xmcascade.serve.limits import Limits
from xmcascade.serve.metrics import Metrics

__all__ = ["COOKIE", "OURS", "Guard", "Keys"]

log = logging.getLogger("xmcascade.serve.access")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

OPEN = {"/livez", "/readyz"}  # routes that need no key
LOGIN = {("POST", "/v1/session"), ("POST", "/")}  # these check the key themselves
LOGIN_BYTES, LOGINS = 16_384, 16  # of the body of such a request; and at once
COOKIE = "xmcascade_session"
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
LOOPBACK = {"localhost", "127.0.0.1", "[::1]"}
REFUSED_BYTES, REFUSED_SECONDS = (
    256 << 20,
    5.0,
)  # of a refused body that are still read, for the answer's sake
OURS = Fault(500, "a fault of ours", "report it, with the request's id")
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "content-security-policy": CONTENT_POLICY,
    "cache-control": "no-store",
}


@dataclass(frozen=True)
class Keys:
    """The key of a server, or none; a browser that has shown it carries a token that expires.

    >>> keys = Keys("secret", 60.0)
    >>> keys.is_key("secret"), keys.is_key("sesame"), keys.is_token(keys.token()), Keys(None).is_key("")
    (True, False, True, True)
    """

    key: str | None = field(repr=False)
    seconds: float = 3600.0

    def is_key(self, given: str) -> bool:
        """Whether this is the key, in a time that does not tell how much of it is right."""
        return self.key is None or hmac.compare_digest(_digest(given), _digest(self.key))

    def token(self) -> str:
        """For a browser's cookie: when it ends, signed with the key."""
        ends = str(int(time.time() + self.seconds))
        return f"{ends}.{self._signed(ends)}"

    def is_token(self, given: str) -> bool:
        """Whether this was made with the key, and has not ended."""
        ends, _, signature = given.partition(".")
        fine = hmac.compare_digest(_digest(self._signed(ends)), _digest(signature))
        return fine and ends.isdecimal() and time.time() < int(ends[:15])

    def _signed(self, ends: str) -> str:
        key = hashlib.sha256(b"session" + (self.key or "").encode()).digest()
        return hmac.new(key, ends.encode("utf-8", "replace"), hashlib.sha256).hexdigest()

    def admits(self, headers: Headers) -> bool:
        """Whether a request may pass: `Authorization: Bearer KEY`, or a browser's cookie."""
        if self.key is None:
            return True
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return self.is_key(given.strip())
        cookies = (part.strip().partition("=") for part in headers.get("cookie", "").split(";"))
        return any(name == COOKIE and self.is_token(value) for name, _, value in cookies)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()


class Guard:
    """Middleware around the whole application."""

    def __init__(
        self,
        app: Any,
        limits: Limits,
        keys: Keys,
        metrics: Metrics,
        hosts: Collection[str] | None,
        login_page: Callable[[], Any],
        check: Mapping[str, Callable[[], None]],
    ) -> None:
        """hosts: names that a request may use for this server; None: any.

        check: by path, what raises a fault before the request is read.
        """
        self.app, self.limits, self.keys, self.metrics = app, limits, keys, metrics
        self.hosts, self.login_page, self.check = hosts, login_page, check
        self.in_flight = self.logins = 0
        self.last_seen = -math.inf
        """When the last request came, on the clock of time.monotonic."""
        self.stopping = False
        """Set when the server is asked to stop: every connection ends with its answer."""

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        await _Passage(self, scope, receive, send).run()


class _Passage:
    """One request on its way through."""

    def __init__(self, guard: Guard, scope: Any, receive: Receive, send: Send) -> None:
        self.guard, self.scope, self._receive, self._send = guard, scope, receive, send
        self.headers, self.begun = Headers(scope=scope), time.monotonic()
        asked = self.headers.get("x-request-id", "")
        self.id = asked if REQUEST_ID.fullmatch(asked) else secrets.token_hex(8)
        self.status, self.read, self.body_ended = 0, 0, False
        self.is_login = (scope["method"], scope["path"]) in LOGIN
        self.most_bytes = LOGIN_BYTES if self.is_login else guard.limits.body_bytes
        scope["state"] = {**scope.get("state", {}), "request_id": self.id, "begun": self.begun, "noted": {}}

    async def run(self) -> None:
        guard = self.guard
        guard.in_flight += 1
        guard.logins += self.is_login
        guard.last_seen = self.begun
        try:
            if not await self._refused():
                await guard.app(self.scope, self.receive, self.send)
        except Fault as fault:
            await self._tell(fault)
        except Exception:
            logging.getLogger("xmcascade.serve").exception("request %s failed", self.id)
            if not self.status:
                await self._tell(OURS)
        finally:
            guard.in_flight -= 1
            guard.logins -= self.is_login
            self._note()

    async def _refused(self) -> bool:
        """Answer what need not go further; returns whether that was so."""
        guard, path = self.guard, self.scope["path"]
        if guard.hosts is not None and _host(self.headers.get("host", "")) not in guard.hosts:
            await self._tell(Fault(403, "this server does not answer to that name", "use its own address"))
            return True
        if path not in OPEN and not self.is_login and not guard.keys.admits(self.headers):
            if path == "/" and "text/html" in self.headers.get("accept", ""):
                await guard.login_page()(self.scope, self.receive, self.send)
            else:
                remedy = "send Authorization: Bearer KEY"
                await self._tell(Fault(401, "the key is missing, wrong or has expired", remedy))
            return True
        length = self.headers.get("content-length", "0")
        if not length.isdecimal() or int(length[:20]) > self.most_bytes:
            raise self._too_large()
        if path not in OPEN and (guard.in_flight > guard.limits.in_flight or guard.logins > LOGINS):
            what = "as many requests as allowed are being answered"
            raise Fault(429, what, "try again after the time in Retry-After", retry_after=1.0)
        if path in guard.check:
            guard.check[path]()
        return False

    def _too_large(self) -> Fault:
        return Fault(413, f"the body has more than {self.most_bytes:,} bytes", "send fewer or shorter texts")

    async def receive(self) -> Message:
        """The next part of the body, while it is neither too large nor too slow."""
        left = self.begun + self.guard.limits.body_seconds - time.monotonic()
        if self.body_ended:
            return await self._receive()  # a client that goes away is waited for without end
        try:
            message = await asyncio.wait_for(self._receive(), max(left, 0.001))
        except TimeoutError:
            most = self.guard.limits.body_seconds
            raise Fault(408, f"the request did not come within {most:g} s", "send it faster") from None
        self.read += len(message.get("body", b""))
        self.body_ended = not message.get("more_body", False)
        if self.read > self.most_bytes:
            raise self._too_large()
        return message

    async def send(self, message: Message) -> None:
        """An answer, with what every answer has."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            headers["x-request-id"] = self.id
            if self.guard.stopping or (self.status in (408, 413) and not self.body_ended):
                headers["connection"] = "close"
        elif self.status == 413 and not self.body_ended and not message.get("more_body", False):
            # Who is still sending reads our answer only when all is sent: take the rest, within bounds.
            await self._send({**message, "more_body": True})
            await self._drained()
            message = {"type": "http.response.body", "body": b"", "more_body": False}
        await self._send(message)

    async def _tell(self, fault: Fault) -> None:
        """Answer a fault; nothing more can be said where an answer has begun."""
        if self.status:
            raise fault
        await answer_of(fault, self.id)(self.scope, self.receive, self.send)

    async def _drained(self) -> None:
        ends, taken, more = time.monotonic() + REFUSED_SECONDS, 0, True
        while more and taken < REFUSED_BYTES and (left := ends - time.monotonic()) > 0:
            try:
                message = await asyncio.wait_for(self._receive(), left)
            except TimeoutError:
                return
            taken += len(message.get("body", b""))
            more = message.get("more_body", False)

    def _note(self) -> None:
        """Count the request, and write its line."""
        seconds, noted = time.monotonic() - self.begun, self.scope["state"]["noted"]
        route = getattr(self.scope.get("route"), "path", "other")
        self.guard.metrics.answered(route, self.scope["method"], self.status, seconds)
        if log.isEnabledFor(logging.INFO) and route not in OPEN:
            line = {
                "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                "request": self.id,
                "method": self.scope["method"],
                "route": route,
                "status": self.status,
                "ms": round(1000 * seconds, 1),
                **noted,
            }
            log.info(json.dumps(line))


def _host(header: str) -> str:
    """The name in a Host header, without its port.

    >>> _host("localhost:8000"), _host("[::1]:8000")
    ('localhost', '[::1]')
    """
    return re.sub(r":\d+$", "", header.lower())
