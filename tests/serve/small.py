"""Small models to serve, and requests as any program would send them."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any

from xmcascade import NearestNeighbours, XRLinear

NASTY = '<script>alert("x")</script> & "quotes" <img src=x onerror=alert(1)>'
TEXTS = ["red apple pie", "blue sky and wind", "green pear", "storm and wind", "sweet apple", "grey sky"] * 4
LABELS = [
    ["fruit", "apple"],
    ["weather"],
    ["fruit", "pear", NASTY],
    ["weather", "storm"],
    ["fruit"],
    ["weather"],
] * 4


def saved(folder: Path, kind: type = XRLinear, labels: Any = LABELS, **settings: Any) -> Path:
    if kind is XRLinear:
        settings = {"tree": {"max_leaf": 2, "arity": 2}, **settings}
    kind(**settings).fit(TEXTS, labels).save(folder)
    return folder


def asked(port: int, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any, Any]:
    """Status, headers and content of an answer; a body that is no bytes is sent as JSON."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    if body is not None:
        headers = {"content-type": "application/json", **headers}
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        raw = answer.read()
    finally:
        connection.close()
    told = json.loads(raw) if "json" in (answer.headers.get("content-type") or "") else raw
    return answer.status, answer.headers, told


__all__ = ["LABELS", "NASTY", "TEXTS", "NearestNeighbours", "XRLinear", "asked", "saved"]
