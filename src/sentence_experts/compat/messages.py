"""Log messages of other libraries that say nothing to the users of this one."""

from __future__ import annotations

import logging
import warnings
from functools import cache, partial

# Logger -> the beginning of its message.
HIDDEN = {
    # A default route is the user's own choice, and the commands that set or use one name it.
    "sentence_transformers.base.model": "Default prompt name is set to",
    # Checkpoints written within a second are then ordered by their steps, as they should be.
    "transformers.trainer_utils": "mtime may not be reliable",
}
# Beginnings of the warnings that accelerate and sentence-transformers cause each other, in every process.
WARNINGS = (
    r"`broadcast_buffers` is deprecated",
    r"torch\.distributed\.nn\.functional\.all_gather is deprecated",
)


@cache
def hide_messages() -> None:
    """Hide them from now on."""
    for name, beginning in HIDDEN.items():
        logging.getLogger(name).addFilter(partial(_begins_otherwise, beginning))
    for beginning in WARNINGS:
        warnings.filterwarnings("ignore", beginning, FutureWarning)


def _begins_otherwise(beginning: str, record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith(beginning)
