"""`create_app` and `serve`: models over HTTP, in another server's process or in a separate one."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from sentence_experts.config import with_settings
from sentence_experts.errors import UsageError, require
from sentence_experts.models.loading import LoadConfig
from sentence_experts.serve.config import ServeConfig, is_local

if TYPE_CHECKING:
    import uvicorn
    from fastapi import APIRouter, FastAPI

    from sentence_experts.serve.engine import EmbeddingEngine
    from sentence_experts.serve.guard import Keys

logger = logging.getLogger(__name__)

CAPACITY, KERNELS = "ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64"
IDLE_SECONDS = 30  # time after which a connection without requests is closed
DRAIN_SECONDS = 30  # time to finish the accepted requests in after a signal to stop
HEADER_SECONDS = 10  # time for a client to send a request's headers
# Connections wait in the system's queue until they are accepted, few at a time: asyncio tries as often in one
# go, also after an error, and those that are closed to make room are gone by the next.
BACKLOG, ACCEPTED_AT_ONCE = 2048, 16


@with_settings(ServeConfig)
def create_app(
    models: Any,
    config: ServeConfig | None = None,
    *,
    load_config: LoadConfig | None = None,
    routers: Sequence[APIRouter] = (),
    **settings: Any,
) -> FastAPI:
    """Load models and return an ASGI app that serves them, for a server of your own.

    Args:
        models: a path, hub id, `NAME=PATH` or model in memory, a list of them, or a mapping of names to them.
        config: settings; those given by name come before it. `host` only decides whether requests must
            name this machine as their host; `port` and `max_connections` have no effect.
        load_config: settings for opening models that are given by path or name; see `load`.
        routers: FastAPI routers of your own; `request.app.state.engine` has the models and the batches.

    Returns:
        A FastAPI app.

    Raises:
        UsageError: a bad setting, no model, two models of one name, or `host` is an address that other
            machines reach and there are no keys.
        InputError: a model, the corpus or the keys cannot be read.

    Example:
        >>> from starlette.testclient import TestClient
        >>> app = create_app({"demo": "model"})
        >>> with TestClient(app, base_url="http://localhost") as client:
        ...     answer = client.post("/v1/embeddings", json={"model": "demo:genomics", "input": "a text"})
        >>> len(answer.json()["data"][0]["embedding"])
        32
    """
    for module in ("fastapi", "prometheus_client", "jinja2"):
        require(module, "serve")
    from sentence_experts.corpus.corpus_folder import CorpusFolder
    from sentence_experts.serve.app import build_app
    from sentence_experts.serve.engine import EmbeddingEngine
    from sentence_experts.serve.followed import FollowedSource, is_source
    from sentence_experts.serve.guard import Keys
    from sentence_experts.serve.library import Library, base_beside
    from sentence_experts.serve.models import Models, named_sources

    config = ServeConfig.of(config, **settings)
    check_host(config)
    if config.corpus is None and (given := sorted({"unit", "passages", "base"} & config.model_fields_set)):
        raise UsageError(
            f"`{given[0]}`: without `corpus` nothing is searched; leave it out, or give a corpus"
        )
    keys = Keys(config.api_key_file) if config.api_key_file else None
    corpus, followed = None, None  # a wrong path is known at once
    if config.corpus and is_source(config.corpus):
        followed = FollowedSource(config.corpus)
        corpus = followed.first_corpus()
    elif config.corpus:
        corpus = CorpusFolder.open(config.corpus)
    sources = named_sources(models)
    base = base_beside(sources, corpus) if corpus is not None and config.base else {}
    loaded = Models(sources | base, LoadConfig.of(load_config))
    library = None
    if corpus is not None:
        texts = config.texts_for({each.name: each.model for each in loaded if each.name not in base})
        library = Library(corpus, loaded, texts, tuple(base))
    local_only = keys is None and is_local(config.host)
    return build_app(EmbeddingEngine(loaded, config), library, keys, local_only, routers, followed)


@with_settings(ServeConfig)
def serve(
    models: Any, config: ServeConfig | None = None, *, load_config: LoadConfig | None = None, **settings: Any
) -> None:
    """Serve models over HTTP until the process gets SIGINT or SIGTERM.

    Accepted requests are then finished first. On SIGHUP, models are loaded again from their folders, and keys
    from their file.

    Args:
        models: models, as in `create_app`.
        config: settings; those given by name come before it.
        load_config: settings for opening models that are given by path or name; see `load`.

    Raises:
        UsageError, InputError: as in `create_app`, or the server cannot listen on the address.
    """
    require("uvicorn", "serve")
    # oneDNN keeps a kernel for each size of a batch, and batches have all sizes: its own limit of 1,024 lets
    # memory grow for hours. Making a kernel anew takes no measurable time.
    os.environ.setdefault(CAPACITY, KERNELS)
    import uvicorn

    from sentence_experts.compat.uvicorn import LimitedProtocol

    config = ServeConfig.of(config, **settings)
    check_host(config)
    listener = _listen(config.host, config.port)
    # SIGHUP would end the process until models are loaded; SIGIO as `have_writers_wait` asks.
    for name in ("SIGHUP", "SIGIO"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    app = create_app(models, config, load_config=load_config)
    host, port = listener.getsockname()[:2]
    page = " (with a search page)" if config.corpus else ""
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}{page}"
    server_config = uvicorn.Config(
        app,
        http=partial(LimitedProtocol, header_seconds=HEADER_SECONDS),  # type: ignore[arg-type]
        limit_concurrency=_max_connections(config) + 1,
        backlog=ACCEPTED_AT_ONCE,
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=DRAIN_SECONDS,
    )
    # The loaded objects stay: searching them for garbage, again and again, would only hold up requests.
    gc.collect()
    gc.freeze()
    _show_access()
    _server(server_config, app.state.engine, app.state.keys, address).run([listener])
    gc.unfreeze()  # DuckDB complains about what is left at the end


def _server(
    server_config: uvicorn.Config, engine: EmbeddingEngine, keys: Keys | None, address: str
) -> uvicorn.Server:
    """Return a uvicorn server that finishes accepted requests after a signal to stop, and then returns."""
    import uvicorn

    from sentence_experts.compat.uvicorn import log_accept_errors_rarely

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            log_accept_errors_rarely(asyncio.get_running_loop())
            await super().startup(sockets)
            for listener in sockets or ():
                listener.listen(BACKLOG)
            logger.info(f"serving {', '.join(engine.models.names)} at {address}")

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            """Stop on signals and return, where uvicorn itself would send the signal again."""
            loop = asyncio.get_running_loop()

            def stop(number: int) -> None:
                engine.draining = True
                self.handle_exit(number, None)

            def load_again() -> None:
                if keys is not None:
                    keys.read_again()
                tasks.append(loop.create_task(engine.models.reload()))

            tasks: list[asyncio.Task[None]] = []
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, stop, number)
            if hasattr(signal, "SIGHUP"):
                loop.add_signal_handler(signal.SIGHUP, load_again)
            yield

    return Server(server_config)


def _max_connections(config: ServeConfig) -> int:
    """Return the setting, or half of the files that this process may open."""
    if os.name == "nt":
        return config.max_connections
    import resource

    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return config.max_connections if files < 0 else max(min(config.max_connections, files // 2), 1)


def _show_access() -> None:
    """Write the access log to stderr, unless the program has set it up."""
    log = logging.getLogger("sentence_experts.access")
    if not log.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)
        log.propagate = False


def check_host(config: ServeConfig) -> None:
    """Refuse to serve other machines without keys."""
    if config.auth and config.api_key_file is None and not is_local(config.host):
        raise UsageError(
            f"`host`: other machines reach {config.host}: give `api_key_file`, or serve anyone (`auth=False`)"
        )


def _listen(host: str, port: int) -> socket.socket:
    """Open a socket that holds the address; connections wait until the models are loaded."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        if os.name != "nt":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen()  # from now on a second server cannot bind the same port
    except OSError as error:
        raise UsageError(f"`host` and `port`: cannot listen on {host}:{port}: {error.strerror}") from error
    return listener
