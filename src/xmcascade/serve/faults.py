"""Every error of the server has one shape: a code, a message, a remedy and the request's id."""

from __future__ import annotations

import json
import math
from typing import Any

from starlette.responses import Response

from xmcascade.serve import schema

__all__ = ["FAULTS", "Fault", "answer_of"]

CODES = {
    400: "bad_request",
    401: "no_key",
    403: "wrong_host",
    404: "not_found",
    405: "wrong_method",
    408: "too_slow",
    409: "not_possible",
    413: "too_large",
    415: "wrong_type",
    422: "not_understood",
    429: "busy",
    500: "fault_of_ours",
    503: "not_ready",
    504: "too_late",
}


class Fault(Exception):
    """A request that is not answered as it hoped.

    >>> Fault(429, "too many requests", retry_after=1.2).headers
    {'retry-after': '2'}
    """

    def __init__(self, status: int, message: str, remedy: str = "", retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.remedy = status, message, remedy
        self.headers: dict[str, str] = {}
        if retry_after is not None:
            self.headers["retry-after"] = str(max(1, math.ceil(retry_after)))
        if status == 401:
            self.headers["www-authenticate"] = "Bearer"


def answer_of(fault: Fault, request_id: str) -> Response:
    """The response to a fault."""
    told: dict[str, Any] = {
        "code": CODES.get(fault.status, "refused"),
        "message": fault.message,
        "remedy": fault.remedy,
        "request_id": request_id,
    }
    body = json.dumps({"error": told}, ensure_ascii=False).encode("utf-8", "replace")
    return Response(body, fault.status, fault.headers, "application/json")


FAULTS: dict[int | str, dict[str, Any]] = {
    status: {"model": schema.ErrorAnswer, "description": text}
    for status, text in {
        401: "The key is missing, wrong or has expired.",
        403: "The server does not answer to the name it was called by.",
        404: "There is no such thing.",
        409: "The model cannot do this.",
        408: "The request came too slowly.",
        413: "The body is too large.",
        422: "The request is not understood, or asks for too much.",
        429: "More is asked for than can be answered; see Retry-After.",
        500: "A fault of ours.",
        503: "Not ready, or stopping.",
        504: "Not answered in time.",
    }.items()
}
"""By status, for OpenAPI."""
