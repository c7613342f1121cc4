"""Settings of `serve`."""

from __future__ import annotations

import ipaddress
from pathlib import Path

from pydantic import Field

from sentence_experts.retrieval.texts import PaperTexts


class ServeConfig(PaperTexts):
    """Settings of `serve` and `create_app`."""

    host: str = Field(
        "127.0.0.1", description="Address to listen on; others than this machine's own need keys"
    )
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one")
    corpus: Path | None = Field(
        None,
        description="Corpus to search: opens the search page at /, and its API. An export of a reference "
        "manager, a table of papers, or a folder of articles, is imported into NAME.corpus beside it, and "
        "followed",
    )
    base: bool = Field(
        True,
        description="Show the base of the first model beside its routes on the search page, if it is at hand "
        "and the corpus has at most 20,000 papers",
    )
    api_key_file: Path | None = Field(None, description="File of keys that clients may send, one per line")
    auth: bool = Field(
        True, description="Require a key if other machines can reach the address; otherwise anyone is served"
    )
    normalize: bool = Field(
        False, description="Scale vectors to length 1 where a request does not say otherwise"
    )
    watch: bool = Field(
        True,
        description="Reload a model when its folder is replaced (SIGHUP reloads all models in any case), and "
        "follow an imported `corpus`",
    )
    workers: int | None = Field(
        None, ge=1, description="Batches encoded at a time. Default: one per CPU core, 1 on other devices"
    )
    batch_tokens: int | None = Field(
        None, ge=1, description="Maximum tokens per batch. Default: 512 on a CPU, 16,384 on other devices"
    )
    queue_tokens: int = Field(
        262_144, ge=1, description="Maximum tokens of accepted requests; more are answered with 429"
    )
    max_texts: int = Field(2048, ge=1, description="Maximum number of texts per request")
    max_connections: int = Field(
        1000,
        ge=1,
        description="Maximum number of connections; for another one, the one that has waited for a request "
        "for longest is closed. At most half of the files that the process may open",
    )


def is_local(host: str) -> bool:
    """Return whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
