"""Uses of torch that its documentation does not promise."""

from __future__ import annotations

import torch


def is_recording() -> bool:
    """Whether torch records a graph with fixed steps (`torch.jit.trace`, `torch.compile`, `torch.export`)."""
    tracing: bool = torch.jit.is_tracing()  # type: ignore[attr-defined]
    return tracing or torch.compiler.is_compiling()
