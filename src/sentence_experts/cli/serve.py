"""`sentence-experts serve`."""

from __future__ import annotations

import typer

from sentence_experts.cli.options import Models, add_verb
from sentence_experts.errors import UsageError
from sentence_experts.models.loading import LoadConfig
from sentence_experts.serve.config import ServeConfig


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    add_verb(app, serve)


def serve(config: ServeConfig, load_config: LoadConfig, models: Models = None) -> None:
    """Serve models over HTTP, in OpenAI's and TEI's form, and a search page with --corpus.

    MODEL can be NAME=MODEL, by which requests then name it. Requests of all routes and protocols share
    batches. SIGTERM finishes what was accepted; SIGHUP loads the models again.

    Example: sentence-experts serve demo=runs/experts/model minilm --port 8000
    """
    from sentence_experts.compat.imports import allow_deferred_imports
    from sentence_experts.serve.run import serve as serve_models

    allow_deferred_imports()

    if not models:
        raise UsageError("give at least one model to serve")
    serve_models(models, config, load_config=load_config)
