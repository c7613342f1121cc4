"""Figures for Prometheus."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
TOKENS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
PREFIX = "sentence_experts_"


class Metrics:
    """The counters of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def histogram(name: str, text: str, buckets: Sequence[float], labels: Sequence[str] = ()) -> Any:
            return Histogram(f"{PREFIX}{name}", text, labels, buckets=buckets, registry=self.registry)

        def counter(name: str, text: str, *labels: str) -> Any:
            return Counter(f"{PREFIX}{name}", text, labels, registry=self.registry)

        self.requests = counter("requests", "Answers", "path", "status")
        self.seconds = histogram("request_seconds", "Time to answer", SECONDS, ["path"])
        self.texts = counter("texts", "Texts encoded", "model", "route")
        self.tokens = counter("tokens", "Tokens encoded", "model", "route")
        self.wait = histogram("encode_seconds", "Time in the queue and in batches", SECONDS)
        self.batch_texts = histogram("batch_texts", "Texts per batch", TEXTS)
        self.batch_tokens = histogram("batch_tokens", "Tokens per batch", TOKENS)
        self.batch_requests = histogram("batch_requests", "Requests that share a batch", TEXTS)
        text = "Tokens of accepted requests, not encoded yet"
        self.queue = Gauge(f"{PREFIX}queue_tokens", text, registry=self.registry)

    def batch(self, texts: int, tokens: int, requests: int) -> None:
        """Count a batch."""
        self.batch_texts.observe(texts)
        self.batch_tokens.observe(tokens)
        self.batch_requests.observe(requests)

    def count_texts(self, model: str, routes: Sequence[str | None], tokens: Sequence[int]) -> None:
        """Count the texts of a request by their routes."""
        for route, number in zip(routes, tokens, strict=True):
            self.texts.labels(model, route or "").inc()
            self.tokens.labels(model, route or "").inc(number)

    def page(self) -> bytes:
        """Return all figures in Prometheus' text format."""
        return generate_latest(self.registry)
