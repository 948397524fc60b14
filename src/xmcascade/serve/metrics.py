"""What can be watched: counters and histograms for Prometheus, on a registry of their own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

__all__ = ["Metrics"]

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
METHODS = {"GET", "POST", "HEAD", "OPTIONS", "DELETE"}


class Metrics:
    """The numbers of a server.

    >>> metrics = Metrics()
    >>> metrics.answered("/v1/predict", "POST", 200, 0.01)
    >>> metrics.text().decode().count('{method="POST",route="/v1/predict",status="200"} 1.0')
    1
    """

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        by = ["route", "method", "status"]
        self.requests = Counter("xmcascade_requests", "Requests answered.", by, registry=registry)
        timed = partial(Histogram, buckets=SECONDS, registry=registry)
        self.seconds = timed("xmcascade_request_seconds", "From request to answer.", ["route"])
        self.queue = timed("xmcascade_queue_seconds", "Before a request has its turn.")
        self.work = timed("xmcascade_batch_seconds", "To answer a batch.")
        told = "Texts answered together."
        self.batch = Histogram("xmcascade_batch_texts", told, buckets=TEXTS, registry=registry)
        self.texts = Counter("xmcascade_texts", "Texts answered.", registry=registry)
        self.tokens = Counter("xmcascade_tokens", "Tokens answered, about.", registry=registry)
        self.loads = Counter(
            "xmcascade_model_loads", "Models loaded.", ["model", "result"], registry=registry
        )
        self.ready = Gauge("xmcascade_ready", "1 when the server is ready.", registry=registry)

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request."""
        method = method if method in METHODS else "other"
        self.requests.labels(route, method, str(status)).inc()
        self.seconds.labels(route).observe(seconds)

    def batched(self, texts: int, tokens: int, seconds: float) -> None:
        """Count a batch."""
        self.work.observe(seconds)
        self.batch.observe(texts)
        self.texts.inc(texts)
        self.tokens.inc(tokens)

    def loaded(self, model: str, fine: bool) -> None:
        """Count a try to load a model."""
        self.loads.labels(model, "loaded" if fine else "failed").inc()

    def watch(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Show a number that is asked for when somebody looks."""
        Gauge(name, text, registry=self.registry).set_function(value)

    def text(self) -> bytes:
        """All of it, as Prometheus reads it."""
        return generate_latest(self.registry)
