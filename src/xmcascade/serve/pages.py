"""The page for people, its parts, and how a browser logs in."""

from base64 import b64encode
from hashlib import sha256
from importlib import resources
from typing import Any
from urllib.parse import parse_qsl

from fastapi import FastAPI, Request
from starlette.responses import Response

from xmcascade.serve import schema
from xmcascade.serve.faults import FAULTS, Fault
from xmcascade.serve.guard import COOKIE, Keys

__all__ = ["add_pages", "login_page"]

TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
LOGIN_PAGE: dict[int | str, dict[str, Any]] = {
    401: {**FAULTS[401], "content": {"text/html": {"schema": {"type": "string"}}}}
}


def add_pages(app: FastAPI, keys: Keys, seconds: float) -> None:
    """Add the page, its parts, and the ways to log in for so many seconds."""
    files = {path.name for path in resources.files("xmcascade.serve").joinpath("page").iterdir()}
    form = {"application/x-www-form-urlencoded": {"schema": schema.SessionRequest.model_json_schema()}}

    def logged_in(answer: Response, request: Request) -> Response:
        answer.set_cookie(
            COOKIE, keys.token(), max_age=int(seconds), httponly=True,
            samesite="lax", secure=request.url.scheme == "https",
        )  # fmt: skip
        return answer

    @app.post("/v1/session", status_code=204, response_class=Response, tags=["page"])
    async def log_in(request: Request, asked: schema.SessionRequest) -> Response:
        """Log a browser in: the answer's cookie stands for the key until it expires."""
        if not keys.is_key(asked.key):
            raise Fault(401, "this is not the key", "ask who runs the server")
        return logged_in(Response(status_code=204), request)

    @app.post(
        "/", status_code=303, response_class=Response, tags=["page"],
        openapi_extra={"requestBody": {"content": form, "required": True}}, responses=LOGIN_PAGE,
    )  # fmt: skip
    async def log_in_by_form(request: Request) -> Response:
        """The same for a form, which needs no script."""
        told = dict(parse_qsl((await request.body()).decode("utf-8", "replace"), keep_blank_values=True))
        try:
            asked = schema.SessionRequest.model_validate(told)
        except ValueError:
            return login_page("There is no key in this.")
        if not keys.is_key(asked.key):
            return login_page("This is not the key.")
        return logged_in(Response(status_code=303, headers={"location": "/"}), request)

    @app.get("/", response_class=Response, tags=["page"], responses=LOGIN_PAGE)
    async def page() -> Response:
        """The page for people."""
        return _file("index.html")

    @app.get("/page/{name}", response_class=Response, tags=["page"])
    async def part(name: str) -> Response:
        """Its parts."""
        if name not in files or name.endswith(".html"):
            raise Fault(404, "there is no such file")
        return _file(name)


def _file(name: str) -> Response:
    path = resources.files("xmcascade.serve").joinpath("page", name)
    kind = TYPES["." + name.rpartition(".")[2]]
    return Response(path.read_bytes(), 200, {"cache-control": "no-cache"}, f"{kind}; charset=utf-8")


def login_page(said: str = "This server asks for a key.") -> Response:
    """A page that needs nothing else: all else needs the key. Its style is allowed by its hash."""
    page = _file("login.html")
    answer = Response(bytes(page.body).replace(b"{said}", said.encode()), 401, None, page.media_type)
    style = bytes(answer.body).partition(b"<style>")[2].partition(b"</style>")[0]
    allowed = b64encode(sha256(style).digest()).decode()
    answer.headers["content-security-policy"] = (
        f"default-src 'none'; style-src 'sha256-{allowed}'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    )
    answer.headers["www-authenticate"] = "Bearer"
    return answer
