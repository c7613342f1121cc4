"""Files and folders on disk: written whole or not at all, locked while in use, resumed after an interruption.

Two mechanisms serve everything that can be interrupted: `locked` lets one process at a time write a folder
or file, and `PartStore` is a folder of parts that the next run goes on from. `open_output` and `StepRecords`
note what a result was made from, so that it is never mistaken for another.
"""

from __future__ import annotations

from sentence_experts.storage.files import (
    read_json,
    replacing,
    replacing_folder,
    sha256_file,
    sha256_settings,
    sha256_text,
    update_json,
    write_json,
    write_parquet,
    write_text,
)
from sentence_experts.storage.locking import InUseError, locked
from sentence_experts.storage.parts import PartStore
from sentence_experts.storage.records import StepRecords, different_setting, open_output

__all__ = [
    "InUseError",
    "PartStore",
    "StepRecords",
    "different_setting",
    "locked",
    "open_output",
    "read_json",
    "replacing",
    "replacing_folder",
    "sha256_file",
    "sha256_settings",
    "sha256_text",
    "update_json",
    "write_json",
    "write_parquet",
    "write_text",
]
