"""The HTTP interface of models: routes, each a few lines over the shelf and the batcher.

What is refused, and with which status, is said in limits.py and guard.py. Every route is in OpenAPI with all
the answers that it can give. (No postponed annotations here: those of routes hold the limits.)
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from starlette.exceptions import HTTPException
from starlette.responses import Response

from xmcascade.errors import XmcError
from xmcascade.report.explain import explain
from xmcascade.serve import schema
from xmcascade.serve.batcher import Batcher, Busy, Closed, Job, Late
from xmcascade.serve.faults import FAULTS, Fault, answer_of
from xmcascade.serve.guard import OURS, Guard, Keys
from xmcascade.serve.limits import Limits
from xmcascade.serve.metrics import Metrics
from xmcascade.serve.pages import add_pages, login_page
from xmcascade.serve.shelf import Shelf, Shelved, UnknownModel
from xmcascade.version import __version__

__all__ = ["Service", "create_app"]

DESCRIPTION = "Tags texts with the right few of up to millions of labels."
DIGITS = 5  # of the numbers in an explanation
EXPLAINING = 8  # what it costs, in predictions, about
MANY = 2000  # labels in an answer, from which on it is not written between other requests
GONE = 499  # a status that nobody receives
ModelName = Annotated[str | None, Query(max_length=100, description="By name; the first one where none is.")]


class Service:
    """What the routes share: models, a queue, numbers, and whether it is ready."""

    def __init__(self, shelf: Shelf, limits: Limits, keys: Keys, metrics: Metrics) -> None:
        self.shelf, self.limits, self.keys, self.metrics = shelf, limits, keys, metrics
        self.status: Literal["starting", "ready", "stopping"] = "starting"
        self.batcher = Batcher(limits.batch_tokens, limits.queue_seconds, metrics.batched)
        shelf.tried = self.tried
        metrics.watch("xmcascade_waiting_requests", "Waiting for their turn.", lambda: self.batcher.n_waiting)
        metrics.watch("xmcascade_waiting_tokens", "Of them, about.", lambda: self.batcher.waiting_tokens)

    def tried(self, own: Shelved) -> None:
        """Let a model answer a few batches where it will answer: its memory is taken there, and once."""
        with suppress(Closed):  # the server stops: nobody will ask
            for texts in own.trials(self.limits.batch_tokens):
                self.batcher.call(partial(own.predict, texts, None, None, None))

    def ready(self) -> None:
        """All models are loaded and answer as they should."""
        if self.status != "starting":
            return
        self.status = "ready"
        self.metrics.ready.set(1)
        self.shelf.watch()

    def stop(self) -> None:
        """Say that no more requests should come."""
        self.status = "stopping"
        self.metrics.ready.set(0)

    def close(self) -> None:
        """Answer what is waiting, and end."""
        self.shelf.close()
        self.batcher.close()

    def model(self, name: str | None) -> Shelved:
        """The model of this name, or a fault."""
        if not self.shelf.names:
            raise Fault(503, "the model is being loaded", "try again in a moment", retry_after=1.0)
        try:
            return self.shelf.get(name)
        except UnknownModel as error:
            raise Fault(404, error.what, error.remedy) from error

    async def answered(self, request: Request, own: Shelved, asked: Any) -> Response:
        """The answer to a prediction."""
        texts, labels = self.limits.explained_texts, self.limits.explained_labels
        if asked.explain and (len(asked.texts) > texts or (asked.k or 0) > labels):
            what = f"explain is for {texts} texts and k of {labels} at most"
            raise Fault(422, what, "ask for less, or without explain")
        allowed = None if asked.allowed_labels is None else tuple(dict.fromkeys(asked.allowed_labels))
        learnt = own.model._fitted()
        if allowed is not None and not learnt.label_ids.keys() >= set(allowed):
            unknown = next(label for label in allowed if label not in learnt.label_ids)
            raise Fault(404, f"the model has no label {unknown[:100]!r}", "search its labels at /v1/labels")
        if asked.threshold == "auto" and learnt.calibration is None:
            raise Fault(409, "the model has no threshold of its own", "give a number from 0 to 1")
        begun, sizes = request.scope["state"]["begun"], own.sizes(asked.texts)
        if asked.explain:
            sizes = [EXPLAINING * size for size in sizes]
        how = {"k": asked.k, "threshold": asked.threshold, "allowed": allowed}
        answer = partial(_explained, own, how) if asked.explain else partial(own.predict, **how)
        question = (id(own), asked.explain, *how.values())
        deadline = begun + self.limits.deadline_seconds
        job = await self._done(request, Job(asked.texts, sizes, question, answer, deadline))
        self.metrics.queue.observe(job.timing.queue)
        noted = request.scope["state"]["noted"]
        noted |= {"texts": len(asked.texts), "tokens": sum(sizes), "batch": job.timing.batch}
        if sum(map(len, job.answers)) > MANY:
            return await asyncio.to_thread(_predictions, own, job, asked.explain, begun)
        return _predictions(own, job, asked.explain, begun)

    def check(self) -> None:
        """Refuse what would wait too long."""
        try:
            self.batcher.check()
        except Busy as busy:
            raise self._busy(busy) from busy

    def _busy(self, busy: Busy) -> Fault:
        what = f"more is waiting than can be answered in {self.limits.queue_seconds:g} s"
        after = min(busy.seconds, self.limits.deadline_seconds)
        return Fault(429, what, "try again after the time in Retry-After", retry_after=after)

    async def _done(self, request: Request, job: Job) -> Job:
        try:
            self.batcher.submit(job)
        except Busy as busy:
            raise self._busy(busy) from busy
        except Closed as error:
            raise Fault(503, "the server is stopping", "ask another one", retry_after=1.0) from error
        answer: asyncio.Future[Any] = asyncio.wrap_future(job.future)
        gone: asyncio.Future[Any] = asyncio.ensure_future(_gone(request))
        try:
            left = max(job.deadline - time.monotonic(), 0.001)
            await asyncio.wait((answer, gone), timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if gone.done() and not answer.done():
                raise Fault(GONE, "the client has gone")
            if not answer.done():
                raise Late
            await answer
        except Late as error:
            what = f"not answered within {self.limits.deadline_seconds:g} s"
            raise Fault(504, what, "send fewer texts, or try again later") from error
        finally:
            gone.cancel()
            answer.cancel()  # what is not begun need not be
        return job


async def _gone(request: Request) -> None:
    """Ends when nobody waits for the answer any more."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _explained(own: Shelved, how: dict[str, Any], texts: list[str]) -> list[Any]:
    """For each text its predictions, and why they are so."""
    found = own.predict(texts, **how)
    reasons = (
        explain(own.model, text, len(row) or 1, allowed_labels=how["allowed"]).to_dict()
        for text, row in zip(texts, found, strict=True)
    )
    return [(row, _rounded(why)) for row, why in zip(found, reasons, strict=True)]


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, DIGITS)
    if isinstance(value, dict):
        return {name: _rounded(own) for name, own in value.items()}
    return [_rounded(own) for own in value] if isinstance(value, list) else value


def _predictions(own: Shelved, job: Job, explained: bool, begun: float) -> Response:
    rows = [row for row, _ in job.answers] if explained else job.answers
    timing, total = job.timing, time.monotonic() - begun
    told = {
        "model": own.name,
        "predictions": [[found._asdict() for found in row] for row in rows],
        "explanations": [why for _, why in job.answers] if explained else None,
        "timings": {
            "queue_ms": round(1000 * timing.queue, 2),
            "work_ms": round(1000 * timing.work, 2),
            "total_ms": round(1000 * total, 2),
            "batch_texts": timing.batch,
        },
    }
    return _json(told)


def _json(told: Any) -> Response:
    return Response(
        json.dumps(told, ensure_ascii=False).encode("utf-8", "replace"), 200, None, "application/json"
    )


def create_app(
    service: Service, *, hosts: set[str] | None = None, origins: list[str] | None = None
) -> tuple[Any, Guard]:
    """The application, and what guards it. origins: web sites whose pages may call it."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(service.close)

    app = FastAPI(
        title="xmcascade", version=__version__, description=DESCRIPTION, lifespan=lifespan,
        docs_url=None, redoc_url=None, responses=FAULTS,
    )  # fmt: skip
    _add_faults(app)
    _add_health(app, service)
    _add_answers(app, service)
    add_pages(app, service.keys, service.limits.session_seconds)
    check = {"/v1/predict": service.check}
    guard = Guard(app, service.limits, service.keys, service.metrics, hosts, login_page, check)
    service.metrics.watch("xmcascade_in_flight", "Requests being answered.", lambda: guard.in_flight)
    if not origins:
        return guard, guard
    # Around the guard: a browser asks whether it may ask without showing a key, and wants to read refusals.
    allowed = CORSMiddleware(
        guard, allow_origins=origins, allow_methods=["GET", "POST"],
        allow_headers=["authorization", "content-type"], expose_headers=["retry-after", "x-request-id"],
    )  # fmt: skip
    return allowed, guard


def _add_faults(app: FastAPI) -> None:
    def told(request: Request, fault: Fault) -> Response:
        return answer_of(fault, request.scope["state"]["request_id"])

    @app.exception_handler(Fault)
    async def _(request: Request, fault: Fault) -> Response:
        return told(request, fault)

    @app.exception_handler(HTTPException)
    async def _(request: Request, error: HTTPException) -> Response:
        if isinstance(error.__cause__, Fault):  # of the guard, as the body was read
            return told(request, error.__cause__)
        if error.status_code == 400:
            return told(
                request, Fault(422, "the body is not JSON", "send UTF-8, nested no deeper than asked for")
            )
        answer = told(request, Fault(error.status_code, error.detail, "see /openapi.json"))
        if error.status_code == 405:  # a path may have several routes
            routes: list[Any] = app.routes
            own = [route.methods for route in routes if route.path_regex.match(request.url.path)]
            answer.headers["allow"] = ", ".join(sorted(set().union(*own)))
        return answer

    @app.exception_handler(Exception)
    async def _(request: Request, error: Exception) -> Response:
        return told(request, OURS)

    @app.exception_handler(XmcError)
    async def _(request: Request, error: XmcError) -> Response:
        return told(request, Fault(422, error.what, error.remedy))

    @app.exception_handler(RequestValidationError)
    async def _(request: Request, error: RequestValidationError) -> Response:
        return told(request, Fault(422, *_misunderstood(error)))


def _misunderstood(error: RequestValidationError) -> tuple[str, str]:
    """What is wrong with a request, and where: the first thing; never the value itself."""
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return f"the body is no JSON, from character {first['loc'][-1]} on", "send JSON, in UTF-8"
    where = ".".join(str(part) for part in first["loc"] if part not in ("body", "query"))
    more = len(error.errors()) - 1
    message = f"{where[:100]}: {first['msg']}" if where else str(first["msg"])
    return message + (f" (and {more} more)" if more else ""), "see /openapi.json for what is allowed"


def _add_health(app: FastAPI, service: Service) -> None:
    @app.get("/livez", response_model=schema.Health, tags=["health"])
    async def livez() -> Any:
        """Whether the server lives."""
        return {"status": "alive"}

    @app.get("/readyz", response_model=schema.Health, tags=["health"])
    async def readyz() -> Response:
        """Whether it may be asked: its models are loaded, and answer as they did when they were saved."""
        if service.status != "ready":
            what = {"starting": "the model is being loaded", "stopping": "the server is stopping"}
            raise Fault(503, what[service.status], "ask again", retry_after=1.0)
        return _json({"status": "ready"})

    @app.get("/metrics", response_class=Response, tags=["health"])
    async def metrics() -> Response:
        """Numbers for Prometheus."""
        return Response(service.metrics.text(), 200, None, service.metrics.content_type)


def _add_answers(app: FastAPI, service: Service) -> None:
    limits = service.limits
    request_type = schema.predict_request(limits)

    @app.post("/v1/predict", response_model=schema.PredictAnswer, tags=["answers"])
    async def predict(request: Request, asked: request_type) -> Response:  # type: ignore[valid-type]
        """Tag texts."""
        return await service.answered(request, service.model(asked.model), asked)  # type: ignore[attr-defined]

    @app.get("/v1/model", response_model=schema.ModelAnswer, tags=["model"])
    async def model(model: ModelName = None) -> Any:
        """What answers here."""
        own = service.model(model)
        return await asyncio.to_thread(_about, own, service)

    @app.get("/v1/labels", response_model=schema.LabelsAnswer, tags=["model"])
    async def labels(
        q: Annotated[str, Query(max_length=200, description="Part of a name, in any case.")] = "",
        limit: Annotated[int, Query(ge=1, le=limits.found_labels)] = 20,
        model: ModelName = None,
    ) -> Any:
        """Search the names of labels."""
        own = service.model(model)
        return await asyncio.to_thread(_labels, own, q, limit)

    @app.get("/v1/tree", response_model=schema.TreeAnswer, tags=["model"])
    async def tree(
        level: Annotated[int, Query(ge=-1, le=100, description="Of a node; -1: above the tree.")] = -1,
        node: Annotated[int, Query(ge=0, le=2**31)] = 0,
        offset: Annotated[int, Query(ge=0, le=2**31, description="Children to pass over.")] = 0,
        limit: Annotated[int, Query(ge=1, le=limits.children)] = 100,
        model: ModelName = None,
    ) -> Any:
        """The children of a node of the label tree."""
        own = service.model(model)
        return await asyncio.to_thread(_branch, own, level, node, offset, limit)


def _about(own: Shelved, service: Service) -> dict[str, Any]:
    learnt, names = own.model._fitted(), own.names
    return {
        "model": own.name,
        "models": service.shelf.names,
        "kind": own.model.name,
        "labels": own.model.n_labels,
        "documents": learnt.n_docs,
        "levels": [] if names is None else names.tree.sizes,
        "opinions": [view.name for view in own.inside.views],
        "runtime": own.model.runtime,
        "threshold": None if learnt.calibration is None else learnt.calibration.threshold,
        "loaded": datetime.fromtimestamp(own.loaded, UTC).isoformat(timespec="seconds"),
        "version": __version__,
        "limits": service.limits.to_dict(),
    }


def _labels(own: Shelved, query: str, limit: int) -> dict[str, Any]:
    names, counts = own.names, own.inside.label_counts
    return {
        "model": own.name,
        "labels": [
            {
                "label": own.inside.label_names[label],
                "documents": int(counts[label]),
                "path": [] if names is None else names.tree.path(label),
            }
            for label in own.search(query, limit)
        ],
    }


def _branch(own: Shelved, level: int, node: int, offset: int, limit: int) -> dict[str, Any]:
    names = own.names
    if names is None:
        raise Fault(404, f"a model of kind {own.model.name} has no label tree", "ask a model that builds one")
    tree, below = names.tree, level + 1
    if below >= tree.n_levels or (level >= 0 and node >= tree.sizes[level]):
        sizes = ", ".join(map(str, tree.sizes))
        raise Fault(
            404, f"there is no node {node} with children on level {level}", f"levels have {sizes} nodes"
        )
    nodes = range(tree.sizes[0]) if level < 0 else tree.children(level, node)
    shown = nodes[offset : offset + limit]
    return {
        "model": own.name,
        "levels": tree.sizes,
        "level": below,
        "total": len(nodes),
        "offset": offset,
        "children": [_node(own, names, below, child) for child in shown],
    }


def _node(own: Shelved, names: Any, level: int, node: int) -> dict[str, Any]:
    below = names.tree.below(level, node)
    used = own.inside.label_counts[names.tree.order[below.start : below.stop]]
    return {"node": node, "name": names.of(level, node), "labels": len(below), "documents": int(used.sum())}
