"""A client for the server, with nothing but the standard library; one connection, kept open.

Threads may share one, and take turns.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Sequence
from threading import Lock
from typing import Any, Literal, Self
from urllib.parse import quote, urlsplit

from xmcascade.errors import XmcError
from xmcascade.models.answers import Prediction

__all__ = ["Client", "ServerError"]

TRIES = 4  # of a request that is refused for the moment
LONGEST_WAIT = 10.0  # seconds between two of them


class ServerError(XmcError):
    """What a server answers in place of what was asked for."""

    def __init__(self, status: int, code: str, what: str, *, where: str = "", remedy: str = "") -> None:
        super().__init__(what, where=where, remedy=remedy)
        self.status, self.code = status, code


class Client:
    """Asks a server.

    >>> Client("http://127.0.0.1:9").predict(["a text"])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    xmcascade.serve.client.ServerError: http://127.0.0.1:9: no answer (...). Remedy: check the server
    """

    def __init__(self, url: str, *, key: str | None = None, timeout: float = 60.0) -> None:
        parts = urlsplit(url)
        kinds: dict[str, Any] = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
        if parts.scheme not in kinds or not parts.hostname:
            raise ServerError(0, "bad_url", f"{url!r} is no address", remedy="write http://HOST:PORT")
        self.url, self._base = url.rstrip("/"), parts.path.rstrip("/")
        self._connection = kinds[parts.scheme](parts.hostname, parts.port, timeout=timeout)
        self._headers, self._turn = {"accept": "application/json"}, Lock()
        if key:
            self._headers["authorization"] = f"Bearer {key}"

    def predict(
        self,
        texts: Sequence[str],
        k: int | None = None,
        *,
        threshold: float | Literal["auto"] | None = None,
        allowed_labels: Sequence[str] | None = None,
        model: str | None = None,
    ) -> list[list[Prediction]]:
        """As Model.predict; a busy server is asked again after the time it names."""
        asked = {"texts": list(texts), "k": k, "threshold": threshold, "model": model}
        asked["allowed_labels"] = None if allowed_labels is None else list(allowed_labels)
        told = self._json(
            "POST", "/v1/predict", {name: own for name, own in asked.items() if own is not None}
        )
        return [[Prediction(**found) for found in row] for row in told["predictions"]]

    def explain(self, text: str, k: int = 5, *, model: str | None = None) -> dict[str, Any]:
        """Why a text got its labels, as Explanation.to_dict."""
        asked = {"texts": [text], "k": k, "explain": True} | ({"model": model} if model else {})
        return dict(self._json("POST", "/v1/predict", asked)["explanations"][0])

    def labels(self, query: str, limit: int = 20) -> list[str]:
        """Labels whose names contain this."""
        told = self._json("GET", f"/v1/labels?q={quote(query)}&limit={limit}")
        return [own["label"] for own in told["labels"]]

    def about(self) -> dict[str, Any]:
        """What answers there."""
        return dict(self._json("GET", "/v1/model"))

    def is_ready(self) -> bool:
        """Whether it may be asked."""
        try:
            self._json("GET", "/readyz", tries=1)
        except ServerError:
            return False
        return True

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _json(self, method: str, path: str, body: Any = None, tries: int = TRIES) -> Any:
        for left in reversed(range(tries)):
            with self._turn:
                status, headers, raw = self._asked(method, path, body)
            if status not in (429, 503) or not left:
                break
            after = headers.get("retry-after", "")
            time.sleep(min(float(after) if after.isdecimal() else 1.0, LONGEST_WAIT))
        try:
            told = json.loads(raw)
            if status == 200:
                return told
            told = {name: str(told["error"][name]) for name in ("code", "message", "remedy")}
        except (ValueError, LookupError, TypeError):
            told = {"code": "unknown", "message": f"an answer of another kind, status {status}"}
            told["remedy"] = "check the address"
        where = f"{self.url}{path.partition('?')[0]}"
        raise ServerError(status, told["code"], told["message"], where=where, remedy=told["remedy"])

    def _asked(self, method: str, path: str, body: Any) -> tuple[int, Any, bytes]:
        raw = None if body is None else json.dumps(body).encode()
        headers = self._headers | ({} if raw is None else {"content-type": "application/json"})
        for again in (True, False):
            fresh = self._connection.sock is None
            try:
                self._connection.request(method, self._base + path, raw, headers)
                answer = self._connection.getresponse()
                return answer.status, answer.headers, answer.read()
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                # An open connection may have been closed by the other side since it was last used.
                if fresh or not again or isinstance(error, TimeoutError):
                    remedy = "check the server"
                    raise ServerError(
                        0, "no_answer", f"no answer ({error})", where=self.url, remedy=remedy
                    ) from error
        raise AssertionError
