"""The one-cycle learning rate of the preprint."""

from __future__ import annotations

from torch.optim import Optimizer
from torch.optim.lr_scheduler import OneCycleLR

from sentence_experts.errors import UsageError


def one_cycle(optimizer: Optimizer, steps: int, warmup_steps: int) -> OneCycleLR:
    """Up to each group's peak rate and down again, AdamW's first beta the other way round (0.95, 0.85).

    Source: Hallee 2024, section 3.3; Smith and Topin 2019. The rate begins at 1/25 of its peak and ends at
    almost nothing, both along a cosine, as in PyTorch.
    """
    peaks = [group["lr"] for group in optimizer.param_groups]
    return OneCycleLR(optimizer, max_lr=peaks, total_steps=steps, pct_start=warmup_steps / steps)


def check_one_cycle(steps: int, warmup_steps: int) -> None:
    """Whether there are steps for a climb and a descent.

    Raises:
        UsageError: there are not.
    """
    if not 2 <= warmup_steps < steps:
        raise UsageError(
            f"--scheduler one_cycle: {warmup_steps} of {steps} steps to climb; it needs at least 2 and fewer "
            "than all: set --warmup-steps"
        )
