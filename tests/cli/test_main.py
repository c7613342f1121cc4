"""Exit codes, one-line errors, and help that a newcomer understands."""

from __future__ import annotations

import errno
import io
import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from rich.console import Console

from helpers.command_line import run
from sentence_experts.cli import console
from sentence_experts.cli.console import NotesHandler
from sentence_experts.cli.main import VERBS, app, main


def is_one_line(text: str) -> bool:
    return len(text.strip().splitlines()) == 1


def test_help_lists_verbs_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--help")
    rows = [line.split()[0] for line in out.partition("Commands:")[2].splitlines() if line[2:3].strip()]
    assert (code, rows) == (0, [*VERBS])


@pytest.mark.parametrize("arguments", [(), ("corpus",), ("moee",)])
def test_missing_command_shows_the_help(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    _, expected, _ = run(capsys, *arguments, "--help")
    code, _, error = run(capsys, *arguments)
    assert code == 2
    assert error.strip() == expected.strip()


def test_help_imports_no_verb() -> None:
    """Nor pydantic, which their settings need: that is most of the time."""
    code = (
        "import sys\nfrom sentence_experts.cli.main import main\ntry: main(['--help'])\n"
        "except SystemExit: print({'pydantic', 'yaml', 'rich.markdown'} & {*sys.modules})"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.splitlines()[-1] == "set()"


def test_misspelt_verb_is_answered_with_a_similar_one(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, error = run(capsys, "evaluat")
    assert code == 2
    assert "'evaluate'" in error


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "corpus"])
def test_every_verb_has_an_example(capsys: pytest.CaptureFixture[str], verb: str) -> None:
    code, out, _ = run(capsys, verb, "--help")
    assert code == 0
    assert f"sentence-experts {verb}" in " ".join(out.split())
    assert "Example" in out


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("pairs", "compile", "corpus"),
        ("pairs", "compile", "corpus", "--out", "x", "--seed", "many"),
        ("train", "m", "--pairs", "p", "--out", "x", "--unknown"),
    ],
)
def test_usage_error_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    code, _, error = run(capsys, *arguments)
    assert code == 2
    assert is_one_line(error)


def test_a_name_that_is_not_utf_8_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, error = run(capsys, "search", "minilm", "rice", "--corpus", "papers \udcff")
    assert code == 2
    assert "error: 'papers \\udcff': not UTF-8" in error
    assert is_one_line(error)


@pytest.mark.parametrize(
    "arguments",
    [
        ("pairs", "compile", "nowhere", "--out", "x"),
        ("train", "minilm", "--pairs", "nowhere", "--out", "x"),
        ("train", "minilm", "--pairs", "p", "--out", "x", "--config", "nowhere.yaml"),
    ],
)
def test_failure_is_one_line_and_exit_code_1(
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, error = run(capsys, *arguments)
    assert code == 1
    assert is_one_line(error)
    assert "Traceback" not in error
    assert not (tmp_path / "x").exists()


def test_debug_shows_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, error = run(capsys, "pairs", "compile", "nowhere", "--out", "x", "--debug")
    assert code == 1
    assert "Traceback" in error


def test_command_line_starts_without_heavy_imports() -> None:
    heavy = ["torch", "transformers", "datasets", "duckdb", "sklearn", "httpx"]
    code = (
        "import sys, json; from sentence_experts.cli import main as m; m.app_with_verbs(*m.VERBS);"
        f"print(json.dumps([name for name in {heavy} if name in sys.modules]))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert json.loads(out) == []


def test_truncated_file_is_no_interruption(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def breaks_off(*_: object, **__: object) -> None:
        raise EOFError("marker missing")

    monkeypatch.setattr("sentence_experts.corpus.corpus_folder.CorpusFolder.open", breaks_off)
    code, _, error = run(capsys, "corpus", "show", tmp_path)
    assert code == 1
    assert "truncated (marker missing)" in error
    assert is_one_line(error)


@pytest.mark.parametrize("arguments", [("train",), ("corpus", "fetch"), ("evaluate",), ("encode",)])
def test_help_is_readable_at_80_columns(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = run(capsys, *arguments, "--help")
    assert code == 0
    assert [line for line in out.splitlines() if len(line) > 80] == []
    command = typer.main.get_command(app)
    for name in arguments:
        command = command.commands[name]
    written = {
        word.rstrip(",") for line in out.splitlines() if line.startswith("  -") for word in line.split()
    }
    assert {flag for each in command.params for flag in each.opts if flag.startswith("-")} <= written


def test_brackets_in_paths_and_names_are_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"text": f"{word} {n}", "label": f"[/{n % 2}]"} for n, word in enumerate(("rice", "wheat") * 20)]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    task = "tasks: {t: {kind: classification, datasets: {d: {file: rows.jsonl}}}}\n"
    (tmp_path / "tasks.yaml").write_text(task)
    papers = "id,title,abstract\n" + "".join(f"{n},Title {n},Text {n}\n" for n in range(3))
    (tmp_path / "papers.csv").write_text(papers)
    for command in (["corpus", "import", "--papers", "papers.csv"], ["tasks", "tasks.yaml"]):
        for _ in range(2):
            with pytest.raises(SystemExit) as stop:
                main([*command, "--out", f"[/x]:smile:{command[0]}"])
            assert stop.value.code == 0, capsys.readouterr().err
        assert f"[/x]:smile:{command[0]}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "how"), [([], "command"), (["--overwrite"], "command without --overwrite")]
)
def test_interrupted_command_says_how_to_continue(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], how: str
) -> None:
    def interrupt(*names: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sentence_experts.cli.main.app_with_verbs", interrupt)
    with pytest.raises(SystemExit):
        main(arguments)
    assert f"the same {how} continues" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("shell", "said"),
    [
        (
            "mkdir gone && cd gone && rmdir ../gone && $run tasks a.yaml --out b",
            "the working directory was removed",
        ),
        ("$run --version > /dev/full", "standard output cannot be written to: No space left"),
        ("$run train --help > /dev/full", "standard output cannot be written to: No space left"),
        ("$run --version >&-", "standard output is closed"),
    ],
)
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_place_that_takes_no_output_is_one_line(tmp_path: Path, shell: str, said: str) -> None:
    (tmp_path / "tasks.yaml").write_text("tasks: {a: {kind: sts, datasets: {b: {file: c.csv}}}}")
    command = shell.replace("$run", f"{Path(sys.executable).parent}/sentence-experts").replace(
        "a.yaml", str(tmp_path / "tasks.yaml")
    )
    done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {said}")
    assert is_one_line(done.stderr)


def test_notes_that_nobody_reads_stop_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unread(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(console, "notes", type(console.notes)(stderr=True))
    monkeypatch.setattr(sys, "stderr", Unread())
    console.note("a note of a command")
    assert console.notes.quiet


def test_a_log_on_a_full_disk_stops_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.StringIO):
        def flush(self) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(console, "notes", Console(file=Full()))
    NotesHandler().emit(logging.makeLogRecord({"msg": "the papers from before", "levelno": logging.WARNING}))
    console.note("a note of a command")
