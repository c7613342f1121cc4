"""Files and folders on disk: written whole or not at all, locked while in use, resumed after an interruption.

`output` is the rule for everything that is written to a place of the user's choice: one process at a time,
which continues an interrupted run of the same settings and refuses anything else. `PartStore` is a
folder of parts from which the next run continues, and `locked` the lock behind both.
"""

from __future__ import annotations

from sentence_experts.storage.files import (
    NoSpaceError,
    allocate_npy,
    check_kinds,
    check_listed,
    check_version,
    describe_full_disk,
    explained,
    have_writers_wait,
    hidden_beside,
    open_to_readers,
    read_json,
    remove_leftovers,
    replacing,
    replacing_folder,
    temporary_folder,
    update_json,
    walk_files,
    write_json,
    write_new_text,
    write_npy,
    write_parquet,
    write_stream,
    write_text,
)
from sentence_experts.storage.hashes import (
    FileState,
    OpenFiles,
    file_state,
    sha256_file,
    sha256_settings,
    sha256_text,
    sha256_unchanging,
)
from sentence_experts.storage.locking import InUseError, locked
from sentence_experts.storage.output import Output, State, output
from sentence_experts.storage.parts import PartStore
from sentence_experts.storage.record import (
    RECORD,
    check_apart,
    check_unchanged,
    hashes_of,
    is_unchanged,
    read_checked_record,
    read_record,
    record_of,
)

__all__ = [
    "RECORD", "FileState", "InUseError", "NoSpaceError", "OpenFiles", "Output", "PartStore", "State",
    "allocate_npy", "check_apart", "check_kinds", "check_listed", "check_unchanged", "check_version",
    "describe_full_disk", "explained", "file_state", "hashes_of", "have_writers_wait", "hidden_beside",
    "is_unchanged", "locked", "open_to_readers", "output", "read_checked_record", "read_json", "read_record",
    "record_of", "remove_leftovers", "replacing", "replacing_folder", "sha256_file", "sha256_settings",
    "sha256_text", "sha256_unchanging", "temporary_folder", "update_json", "walk_files", "write_json",
    "write_new_text", "write_npy", "write_parquet", "write_stream", "write_text",
]  # fmt: skip
