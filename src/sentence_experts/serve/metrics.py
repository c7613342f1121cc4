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
        own: dict[str, Any] = {"registry": self.registry}
        by_route = ("model", "route")
        self.requests = Counter(f"{PREFIX}requests", "Answers", ("path", "status"), **own)
        self.seconds = Histogram(
            f"{PREFIX}request_seconds", "Time to answer", ("path",), buckets=SECONDS, **own
        )
        self.texts = Counter(f"{PREFIX}texts", "Texts encoded", by_route, **own)
        self.tokens = Counter(f"{PREFIX}tokens", "Tokens encoded", by_route, **own)
        self.wait = Histogram(
            f"{PREFIX}encode_seconds", "Time in the queue and in batches", buckets=SECONDS, **own
        )
        self.batch_texts = Histogram(f"{PREFIX}batch_texts", "Texts per batch", buckets=TEXTS, **own)
        self.batch_tokens = Histogram(f"{PREFIX}batch_tokens", "Tokens per batch", buckets=TOKENS, **own)
        self.batch_requests = Histogram(
            f"{PREFIX}batch_requests", "Requests that share a batch", buckets=TEXTS, **own
        )
        self.queue = Gauge(f"{PREFIX}queue_tokens", "Tokens of accepted requests, not encoded yet", **own)

    def batch(self, texts: int, tokens: int, requests: int) -> None:
        """Count a batch."""
        self.batch_texts.observe(texts)
        self.batch_tokens.observe(tokens)
        self.batch_requests.observe(requests)

    def count_texts(self, model: str, routes: Sequence[str | None], tokens: Sequence[int]) -> None:
        """Count the texts of a request by their routes."""
        totals: dict[str, list[int]] = {}
        for route, number in zip(routes, tokens, strict=True):
            total = totals.setdefault(route or "", [0, 0])
            total[0] += 1
            total[1] += number
        for route, (texts, number) in totals.items():
            self.texts.labels(model, route).inc(texts)
            self.tokens.labels(model, route).inc(number)

    def page(self) -> bytes:
        """Return all figures in Prometheus' text format."""
        return generate_latest(self.registry)
