"""One rule for everything that is written to a folder or file of the user's choice.

If nothing is there the run starts, and an interrupted run of the same settings continues. An output that is
finished, with the same settings, is left as it is. Anything else is refused, unless `overwrite` is given,
which starts over. It removes only what this package wrote, and a file that is named as the output. The record
of that is `made_from.json` in a folder, and `NAME.json` beside a file.

The old output stays as it is until the new one is whole and on the disk, and takes its place by renames.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from sentence_experts.errors import InputError, UsageError
from sentence_experts.storage.disk import hidden_beside, remove, sync, temporary_beside
from sentence_experts.storage.files import open_to_readers, write_json
from sentence_experts.storage.locking import is_later_process, locked
from sentence_experts.storage.parts import SETTINGS, PartStore, settings_of_parts
from sentence_experts.storage.record import (
    NEW,
    RECORD,
    WHOLE,
    changed_file,
    check_free,
    described,
    different_setting,
    files_in,
    hashes_of,
    is_damaged,
    read_record,
    record_file,
    record_of,
    removable_files,
    remove_own_files,
    take_place,
)

logger = logging.getLogger(__name__)

State = Literal["new", "unfinished", "finished"]
_NAMED = 3  # of the files that are in the way


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
        what: is written, such as "training run"; for messages, and so that nothing else is taken for it.
        names: the top-level names that are written into the folder, as far as they are known; of a file,
            the names of files beside it.
        keeps: the names of what no new run needs to lose, such as caches: it is never removed.
        grows: the result grows in its folder (in `NEW` inside it, if it is to replace another), where an
            interrupted run continues; it consists of `names`. Otherwise it is written elsewhere and takes its
            place when it is whole (`Output.replacing`).
        is_file: whether `out` is a file.
        overwrite: start over if an output of the same kind, or nothing of this package, is there; a file at
            `out` is replaced, whoever wrote it.
        shared: the processes that `torchrun` started together write it, and the first one holds the lock.

    Raises:
        InUseError: another process is writing it.
        UsageError: something else is there.
        InputError: the place cannot be written to, or a newer version of this package wrote what is there.
    """
    path = Path(out)
    if path.parts[:1] and path.parts[0][:1] == "~":  # which pyarrow would take for a home, and others not
        path = Path.cwd() / path
    if os.path.islink(path) or not path.name or path.name == "..":
        path = Path(os.path.realpath(path))  # what a link points to is replaced, not the link
    options = (what, tuple(names), frozenset(keeps), grows, is_file, overwrite)
    if shared and is_later_process():
        yield Output(path, *options)
        return
    with locked(path, what):
        if not is_file:
            take_place(path, options[1])  # where a run was interrupted
        place = Output(path, *options)
        place.check_vacant()
        try:
            yield place
        except BaseException:
            place.remove_empty()
            raise


class Output:
    """A folder or file that is being written, under its lock.

    Attributes:
        path: the folder or file to write; known after `begin`.
        final: the folder or file that it will be. What `keeps` names is there.
        result: small values to note with the finished output, for the run that finds it finished.
    """

    def __init__(
        self,
        path: Path,
        what: str,
        names: tuple[str, ...],
        keeps: frozenset[str],
        grows: bool,
        is_file: bool,
        overwrite: bool,
    ) -> None:
        self.path = self.final = path
        self.result: dict[str, Any] = {}
        self._what, self._keeps, self._overwrite = what, keeps, overwrite
        self._is_file, self._grows = is_file, grows
        self._home = path.parent if is_file else path
        self._names = (path.name, *names) if is_file else names
        self._file = record_file(path, is_file)
        self._record = read_record(self._file)
        self._parts = hidden_beside(path, ".parts")
        self._settings: dict[str, Any] = {}
        self._inputs: Mapping[str, Callable[[], Any]] = {}

    def check_vacant(self) -> None:
        """Refuse what no run of this package wrote, or a run that wrote something else.

        Raises:
            UsageError: such a thing is there.
            InputError: the record of what is there is damaged.
        """
        if self.path.exists() and self.path.is_dir() == self._is_file:
            kinds = ("folder", "file") if self._is_file else ("file", "folder")
            raise UsageError(f"{self.path} is a {kinds[0]}; `out` must be a {kinds[1]}")
        if self._record is not None:
            if self._record["what"] != self._what:  # also with `overwrite`: it may be what is read
                raise UsageError(f"{self.path} holds a {self._record['what']}: give another `out`")
            return
        if is_damaged(self._file):
            if not self._overwrite:
                raise InputError(f"{self._file}: damaged; give `overwrite` to start over")
            if self._grows or self._is_file:
                return
        beside = self._is_file or self._overwrite
        names = [*self._names, self._file.name] if beside else _listed(self._home)
        replaced = {self.path.name} if self._is_file and self._overwrite else set()
        stays = self._keeps | replaced
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
                f"{self._what} beside them"
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
        state: State = "new" if self._overwrite else self._compare()
        if state == "new":
            remove(self._parts)
        if state == "new" and self._grows:
            if removable_files(self.path, self._names) and self._overwrite:
                self.reopen()
            else:
                remove_own_files(self.path, self._names)
                self._note(None)
        return state

    def _compare(self) -> State:
        """Compare the settings with those of what was finished or begun."""
        new, parts = read_record(self.path / NEW / RECORD), settings_of_parts(self._parts)
        if self._grows and new is not None and different_setting(new["settings"], self._settings) is None:
            self._move_to(self.path / NEW)
        begun = {name: value for name, value in (parts or {}).items() if name in self._settings}
        if begun and different_setting(begun, self._settings) is None:
            return "unfinished"  # whatever it is to replace
        record = self._record
        if record is None and parts is None:
            return "new"
        before = begun if record is None else record["settings"]
        unfinished = record is None or record["files"] is None
        if (name := different_setting(before, self._settings)) is not None:
            if record and unfinished and not self._has_content():
                return "new"
            verb = "begun" if unfinished else "made"
            raise UsageError(
                f"{self.path}: this {self._what} was {verb} with {described(name, before)}; give another "
                "`out`, or `overwrite` to start over"
            )
        if record is None or unfinished:
            return "unfinished"
        if (changed := changed_file(self._home, record["files"])) is not None:
            raise InputError(f"{changed}: give `overwrite` to make this {self._what} again")
        self.result = record["result"]
        logger.info(f"{self.path}: this {self._what} is finished already, with the same settings and inputs")
        return "finished"

    def _move_to(self, folder: Path) -> None:
        self.path = self._home = folder
        self._file = record_file(folder, False)
        self._record = read_record(self._file)

    def remove_empty(self) -> None:
        """Remove the record of what was begun, if nothing was written besides."""
        if self._parts.is_dir() and {entry.name for entry in os.scandir(self._parts)} <= {SETTINGS}:
            remove(self._parts)
        begun = self._grows and self._record and self._record["files"] is None
        if begun and not self._has_content():
            self._file.unlink(missing_ok=True)
            if self.path.is_dir() and not any(os.scandir(self.path)):
                self.path.rmdir()

    def _has_content(self) -> bool:
        return any(files_in(self._home / name) for name in self._names)

    def parts(self, suffix: str, **more: Any) -> PartStore:
        """Parts of the result beside it, for a result that does not grow in its folder.

        `more` are settings that decide the parts, but not the result.
        """
        return PartStore.open(self._parts, {**self._settings, **more}, suffix)

    @contextmanager
    def replacing(self) -> Iterator[Path]:
        """Yield a temporary path, a folder or a file to be, that takes the output's place when it is whole.

        Files that this package did not write stay in the folder. Files beside an output file are written
        beside the temporary one.

        Raises:
            InputError: an input has changed meanwhile.
            UsageError: a file that this package did not write has a name that is needed.
        """
        inside = not self._is_file and self.path.is_dir()
        temporary = temporary_beside(self.path / "new" if inside else self.path)
        temporary.mkdir(parents=True)
        try:
            yield temporary / self.path.name if self._is_file else temporary
            self._check_inputs()
            open_to_readers(temporary)
            sync(temporary)
            if self._is_file:
                self._replace_files(temporary)
            else:
                if inside:
                    check_free(self.path, temporary, keeps=self._keeps)
                self._note(hashes_of(temporary, _listed(temporary)), temporary / RECORD)
                sync(temporary / RECORD)
                sync(temporary, inner=False)
                os.replace(temporary, self.path / WHOLE if inside else self.path)
                take_place(self.path)
            sync(self.path.parent, inner=False)
        finally:
            remove(temporary)
        remove(self._parts)

    def _replace_files(self, temporary: Path) -> None:
        old = (self._record or {}).get("files") or {}
        self._note(None)
        for name in (*self._names[1:], self.path.name):
            if (temporary / name).exists():
                os.replace(temporary / name, self._home / name)
        for name in old.keys() - set(self._names):
            (self._home / name).unlink(missing_ok=True)
        self._note(hashes_of(self._home, self._names))
        sync(self._file)

    def reopen(self) -> None:
        """Make an output that grows again, in `NEW`; the old one stays until then."""
        new = self.final / NEW
        remove(new)
        new.mkdir()
        self._move_to(new)
        self._note(None)

    def finish(self, *names: str, whole: bool = True) -> None:
        """Note that an output that grows is whole, with the hashes of its files: of `names`, or of all.

        If it is not `whole`, it takes the place of an older one all the same, and the next run continues it.

        Raises:
            InputError: an input has changed meanwhile.
            UsageError: a file that this package did not write has a name that is needed.
        """
        self._check_inputs()
        hashed = [name for name in names or self._names if (self._home / name).exists()]
        if self.path != self.final:
            check_free(self.final, self.path, self._names, self._keeps)
        for name in hashed:
            sync(self._home / name)
        every = self._names
        if whole:
            self._names = tuple(name for name in every if name not in (names or every))
        self._note(hashes_of(self._home, hashed) if whole else None)
        sync(self._file)
        sync(self._home, inner=False)
        if self.path != self.final:
            os.replace(self.path, self.final / WHOLE)
            take_place(self.final, every)
            self._move_to(self.final)

    def _check_inputs(self) -> None:
        for name, fingerprint in self._inputs.items():
            if fingerprint() != self._settings[name]:
                raise InputError(
                    f"{self.path}: not written, since its {name} changed while it was read; give the same "
                    "command again"
                )

    def _note(self, files: dict[str, str] | None, file: Path | None = None) -> None:
        owned = self._names if self._grows else ()
        self._record = record_of(self._what, self._settings, self.result, files, owned)
        write_json(file or self._file, self._record)


def _listed(folder: Path) -> list[str]:
    """Return the names in a folder, hidden ones aside."""
    return [name for name in sorted(os.listdir(folder)) if name[0] != "."] if folder.is_dir() else []
