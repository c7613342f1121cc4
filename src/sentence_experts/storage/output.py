"""One rule for everything that is written to a folder or file of the user's choice.

If nothing is there the run starts, and an interrupted run of the same settings continues. An output that is
finished, with the same settings, is left as it is. Anything else is refused, unless `overwrite` is given,
which starts over; the same call after an interruption continues then, too. It removes only what this package
wrote, and a file that is named as the output. The record of that is `made_from.json` in a folder, and
`NAME.json` beside a file.

The old output stays as it is until the new one is whole and on the disk, and takes its place by renames.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from sentence_experts.errors import InputError, UsageError
from sentence_experts.storage.files import (
    hidden_beside,
    open_to_readers,
    remove,
    remove_leftovers,
    sync,
    temporary_beside,
    write_json,
)
from sentence_experts.storage.locking import locked
from sentence_experts.storage.parts import ANEW, SETTINGS, PartStore, settings_of_parts
from sentence_experts.storage.record import (
    NEW,
    RECORD,
    check_free,
    describe_difference,
    files_under,
    find_changed_file,
    find_different_setting,
    hashes_of,
    is_damaged,
    list_own_files,
    read_record,
    record_file,
    record_of,
    take_place,
)

logger = logging.getLogger(__name__)

State = Literal["new", "unfinished", "finished"]
_NAMED = 3  # number of files in the way that a message names


@contextmanager
def output(
    out: Path | str,
    what: str,
    *,
    names: Iterable[str] = (),
    keeps: Iterable[str] = (),
    grows: bool = False,
    is_file: bool = False,
    overwrite: bool = False,
    shared: bool = False,
) -> Iterator[Output]:
    """Lock an output while the block writes it.

    An error of a full disk inside the block becomes one line that says what to do.

    Args:
        out: the folder or file.
        what: kind of the output, such as "training run"; for messages, and to tell it from other outputs.
        names: the top-level names that are written into the folder, as far as they are known.
        keeps: names that no new run needs to lose, such as caches: they are never removed.
        grows: whether the result grows in its folder (in `NEW` inside it, if it replaces another), where an
            interrupted run continues; it consists of `names`. Otherwise it is written elsewhere and takes its
            place when it is whole (`Output.replacing`).
        is_file: whether `out` is a file.
        overwrite: start over if an output of the same kind, or nothing of this package, is there; a file at
            `out` is replaced, even if another program wrote it.
        shared: whether the processes of one `torchrun` write it together; the first one holds the lock.

    Raises:
        InUseError: another process is writing it.
        UsageError: something else is there.
        InputError: the place cannot be written to, or a newer version of this package wrote what is there.
    """
    path = Path(out)
    # What a link points to is replaced, not the link. And pyarrow would take "~" for a home.
    if path.is_symlink() or path.name in ("", "..") or path.parts[0][:1] == "~":
        path = Path(os.path.realpath(path))
    place = Output(path, what, tuple(names), frozenset(keeps), grows, is_file, overwrite)
    if shared and "LOCAL_RANK" in os.environ and os.environ.get("RANK", "0") != "0":
        yield place
        return
    with locked(path, what):
        if not is_file:
            take_place(path, place.names)  # if a run was interrupted
        place.check_vacant()
        try:
            yield place
        except BaseException:
            place.remove_empty()
            raise


@dataclass
class Output:
    """A folder or file that is being written, under its lock.

    Attributes:
        path: the folder or file to write; known after `begin`.
        final: the folder or file that it will be. What `keeps` names is there.
        result: small values to note with the finished output, for the run that finds it finished.
    """

    path: Path
    what: str
    names: tuple[str, ...]
    keeps: Collection[str]
    grows: bool
    is_file: bool
    overwrite: bool
    result: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.final = self.path
        self._home = self.path.parent if self.is_file else self.path
        self._parts = hidden_beside(self.path, ".parts")
        self._settings: dict[str, Any] = {}
        self._inputs: Mapping[str, Callable[[], Any]] = {}
        if self.is_file:
            self.names = (self.path.name,)

    @property
    def _file(self) -> Path:
        return record_file(self.path, self.is_file)

    def check_vacant(self) -> None:
        """Refuse what no run of this package wrote, or a run that wrote something else.

        Raises:
            UsageError: such a thing is there.
            InputError: the record of what is there is damaged.
        """
        if self.path.exists() and not self.path.is_dir() and not self.path.is_file():
            raise UsageError(f"{self.path} is neither a file nor a folder; give another `out`")
        if self.path.exists() and self.path.is_dir() == self.is_file:
            kinds = ("folder", "file") if self.is_file else ("file", "folder")
            raise UsageError(f"{self.path} is a {kinds[0]}; `out` must be a {kinds[1]}")
        if (record := read_record(self._file)) is not None:
            if record["what"] != self.what:  # also with `overwrite`: it may be what is read
                raise UsageError(f"{self.path} holds a {record['what']}: give another `out`")
            return
        if is_damaged(self._file):
            if not self.overwrite:
                raise InputError(f"{self._file}: damaged; give `overwrite` to start over")
            if self.grows or self.is_file:
                return
        beside = self.is_file or self.overwrite
        names = [*self.names, self._file.name] if beside else _list_names(self._home)
        stays = {*self.keeps, *([self.path.name] if self.is_file and self.overwrite else [])}
        others = [name for name in names if name not in stays and os.path.lexists(self._home / name)]
        if others and beside:
            choice = ", or give `overwrite` to replace it" if others[0] == self.path.name else ""
            raise UsageError(
                f"{self._home / others[0]}: not written by this program, and in the way: move it away{choice}"
            )
        if others:
            shown = ", ".join(others[:_NAMED]) + (", ..." if len(others) > _NAMED else "")
            raise UsageError(
                f"{self.path} holds other files ({shown}): give another `out`, or `overwrite` to write the "
                f"{self.what} beside them"
            )

    def begin(self, settings: Mapping[str, Any], inputs: Mapping[str, Callable[[], Any]] = {}) -> State:
        """Compare with what is there; called once, before anything is written.

        Args:
            settings: everything that decides the result, as plain values.
            inputs: name -> the fingerprint of an input, which must not change until the output is finished.

        Raises:
            UsageError: what is there was made with other settings or inputs.
            InputError: a file of the finished output is missing or has changed.
        """
        self._inputs = inputs
        given = {**settings, **{name: fingerprint() for name, fingerprint in inputs.items()}}
        self._settings = json.loads(json.dumps(given, default=str))
        new = read_record(self.path / NEW / RECORD) if self.grows else None
        if new is not None and new["settings"] == self._settings:  # a replacement that was interrupted
            self.path = self._home = self.path / NEW
            remove_leftovers(self.path)
            return "unfinished"
        state: State = "new"
        if not self.overwrite:
            state = self._compare()
        elif self._is_begun_anew():
            state = "unfinished"
        if state == "new":
            remove(self._parts)
            self.result = {ANEW: True} if self.overwrite else {}
            if self.grows and self.overwrite and list_own_files(self.path, self.names):
                self.reopen()
            elif self.grows:
                self._note(None)
        return state

    def _is_begun_anew(self) -> bool:
        """Return whether the same call, with `overwrite`, has begun this output and was interrupted."""
        begun, record = self._read_settings_of_parts(anew=True), read_record(self._file)
        if begun and begun == self._settings:
            return True
        if not self.grows or record is None or record["files"] is not None:
            return False
        return record["settings"] == self._settings and bool(record["result"].get(ANEW))

    def _read_settings_of_parts(self, anew: bool = False) -> dict[str, Any]:
        parts = settings_of_parts(self._parts, anew) or {}
        return {name: value for name, value in parts.items() if name in self._settings}

    def _compare(self) -> State:
        """Compare the settings with the finished or begun output's."""
        record, parts = read_record(self._file), settings_of_parts(self._parts)
        begun = self._read_settings_of_parts()
        if begun and begun == self._settings:
            return "unfinished"  # parts of the same output, beside one that they will replace
        if self.is_file and record and (others := (record["files"] or {}).keys() - set(self.names)):
            raise UsageError(
                f"{self.path}: its record is of another file, {min(others)}: give another `out`, or "
                "`overwrite` to replace it"
            )
        is_finished = record is not None and record["files"] is not None
        if not is_finished and parts is None and not files_under(self._home, self.names):
            return "new"
        before = begun if record is None else record["settings"]
        if (name := find_different_setting(before, self._settings)) is not None:
            raise UsageError(
                f"{self.path}: this {self.what} was {'made' if is_finished else 'begun'} with "
                f"{describe_difference(name, before)}; give another `out`, or `overwrite` to start over"
            )
        if record is None or not is_finished:
            return "unfinished"
        if (changed := find_changed_file(self._home, record["files"])) is not None:
            there = self.path if self.path.exists() else self._file
            raise InputError(
                f"{changed}: give `overwrite` to make this {self.what} again, or move {there} away"
            )
        self.result = record["result"]
        logger.info(f"{self.path}: this {self.what} is finished already, with the same settings and inputs")
        if parts is not None:
            logger.info(
                f"{self._parts} holds what an interrupted command with `overwrite` has made: to go on, give "
                "that command again; or remove the folder"
            )
        return "finished"

    def remove_empty(self) -> None:
        """Remove the record of what was begun, if nothing was written besides."""
        if self._parts.is_dir() and {entry.name for entry in os.scandir(self._parts)} <= {SETTINGS}:
            remove(self._parts)
        record = read_record(self._file) if self.grows else None
        if record and record["files"] is None and not files_under(self._home, self.names):
            self._file.unlink()
            for name in self.names:  # folders without a file
                remove(self._home / name)
            if not any(os.scandir(self.path)):
                self.path.rmdir()

    def parts(self, suffix: str, **more: Any) -> PartStore:
        """Return the parts of the result, which lie beside it, for a result that does not grow in its folder.

        `more` are settings that decide the parts, but not the result; parts with others are made anew.
        """
        settings, before = {**self._settings, **more}, settings_of_parts(self._parts)
        made = len(list(self._parts.glob(f"[!.]*{suffix}"))) if before else 0
        if before and made and (name := find_different_setting(before, settings)) is not None:
            logger.warning(
                f"{self.path}: {made:,} parts of an interrupted run are made again: they were made with "
                f"{describe_difference(name, before).replace('rounding.', '')}"
            )
        return PartStore.open(self._parts, settings, suffix, anew=self.overwrite)

    @contextmanager
    def replacing(self) -> Iterator[Path]:
        """Yield a temporary path, a folder or a file to be, that takes the output's place when it is whole.

        Files that this package did not write stay in the folder.

        Raises:
            InputError: an input has changed meanwhile.
            UsageError: a file that this package did not write has a name that is needed.
        """
        inside = not self.is_file and self.path.is_dir()
        temporary = temporary_beside(self.path / "new" if inside else self.path)
        temporary.mkdir(parents=True)
        try:
            yield temporary / self.path.name if self.is_file else temporary
            self.check_inputs()
            self.result.pop(ANEW, None)
            open_to_readers(temporary)
            sync(temporary)
            if self.is_file:
                self._note(None)
                os.replace(temporary / self.path.name, self.path)
                self._note(hashes_of(self._home, self.names))
                sync(self._file)
            else:
                if inside:
                    check_free(self.path, temporary, keeps=self.keeps)
                    remove(self.path / NEW)
                self._note(hashes_of(temporary, _list_names(temporary)), temporary / RECORD)
                sync(temporary / RECORD)
                sync(temporary, inner=False)
                os.replace(temporary, self.path / NEW if inside else self.path)
                take_place(self.path)
            sync(self.path.parent, inner=False)
        finally:
            remove(temporary)
        remove(self._parts)

    def reopen(self) -> None:
        """Make an output that grows again, in `NEW`; the old one stays until then."""
        self.path = self._home = self.final / NEW
        remove(self.path)
        self._note(None)

    def finish(self, *names: str) -> None:
        """Note that an output that grows is whole, with the hashes of its files: of `names`, or of all.

        Raises:
            InputError: an input has changed meanwhile.
            UsageError: a file that this package did not write has a name that is needed.
        """
        self.check_inputs()
        self.result.pop(ANEW, None)
        hashed = [name for name in names or self.names if (self._home / name).exists()]
        if self.path != self.final:
            check_free(self.final, self.path, self.names, self.keeps)
        for name in hashed:
            sync(self._home / name)
        owned = [name for name in self.names if name not in (names or self.names)]
        self._note(hashes_of(self._home, hashed), owned=owned)
        sync(self._file)
        sync(self._home, inner=False)
        if self.path != self.final:
            take_place(self.final, self.names)
            self.path = self._home = self.final

    def check_inputs(self) -> None:
        """Refuse to go on with inputs that have changed since `begin`.

        Raises:
            InputError: they have.
        """
        for name, fingerprint in self._inputs.items():
            if fingerprint() != self._settings[name]:
                raise InputError(
                    f"{self.path}: not written, since its {name} changed while it was read; start over with "
                    "`overwrite`"
                )

    def _note(
        self, files: dict[str, str] | None, file: Path | None = None, owned: Iterable[str] | None = None
    ) -> None:
        owned = (self.names if self.grows else ()) if owned is None else owned
        write_json(file or self._file, record_of(self.what, self._settings, self.result, files, owned))


def _list_names(folder: Path) -> list[str]:
    """Return the names in a folder, hidden ones aside."""
    return [name for name in sorted(os.listdir(folder)) if name[0] != "."] if folder.is_dir() else []
