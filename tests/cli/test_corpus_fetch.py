"""`corpus fetch` from the command line: one clear line for a user's first mistakes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sentence_experts.cli.main import main
from sentence_experts.corpus.sources import client

# Port 9 (discard) is closed here: nobody answers.
NOBODY = "services:\n" + "".join(
    f"  {name}: {{url: 'http://127.0.0.1:9', per_second: 100}}\n" for name in ("entrez", "pmc_bucket")
)
Fetch = Callable[..., str]


@pytest.fixture
def fetch(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Fetch:
    """Give the verb these arguments; it must end with the code, and its only line is returned."""
    for name in [name for name in os.environ if name.startswith("NCBI_")]:
        monkeypatch.delenv(name)

    def run(code: int, *arguments: object) -> str:
        with pytest.raises(SystemExit) as stop:
            main(["corpus", "fetch", *map(str, arguments)])
        lines = [line for line in capsys.readouterr().err.splitlines() if line.strip()]
        assert (stop.value.code, len(lines)) == (code, 1), lines
        return lines[0]

    return run


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.yaml"
    path.write_text("domains: {copd: '\"Asthma\"[MeSH]'}\n" + NOBODY)
    return path


def test_no_email(fetch: Fetch, tmp_path: Path) -> None:
    said = fetch(2, "--domains", "a=asthma[MeSH]", "--out", tmp_path / "c")
    assert "--email you@example.org" in said
    assert not (tmp_path / "c").exists()


def test_invalid_email(fetch: Fetch, tmp_path: Path) -> None:
    said = fetch(2, "--domains", "a=asthma[MeSH]", "--out", tmp_path / "c", "--email", "me")
    assert "--email: not an email address (got 'me')" in said


def test_no_domain(fetch: Fetch, tmp_path: Path) -> None:
    assert "--domains: give at least one NAME=QUERY" in fetch(2, "--out", tmp_path / "c")
    assert "not of the form NAME=QUERY" in fetch(2, "--domains", "asthma", "--out", tmp_path / "c")


def test_bad_values_are_refused(fetch: Fetch, tmp_path: Path, plan: Path) -> None:
    mine = ("--config", plan, "--out", tmp_path / "c", "--email", "a@b.org")
    assert "--licences" in fetch(2, *mine, "--licences", "free")
    assert "--source" in fetch(2, *mine, "--source", "scopus")
    named = ("--domains", "my domain=q", "--out", tmp_path / "c", "--email", "a@b.org")
    assert "letters, digits" in fetch(2, *named)
    plan.write_text("domains: [a, b]")
    assert "plan.yaml: domains" in fetch(1, *mine)
    plan.write_text("- a")
    assert "'key: value' lines" in fetch(1, *mine)
    assert "none.yaml" in fetch(1, *mine[2:], "--config", tmp_path / "none.yaml")


def test_fetch_without_network_is_one_error(
    fetch: Fetch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, plan: Path
) -> None:
    monkeypatch.setattr(client, "ATTEMPTS", 2)
    mine = ("--config", plan, "--out", tmp_path / "c")
    monkeypatch.setenv("NCBI_EMAIL", "a@b.org")
    said = fetch(1, *mine)
    assert "cannot reach 127.0.0.1:9" in said
    assert "are you online?" in said


@pytest.mark.skipif(os.geteuid() == 0 and not os.path.exists("/proc/1"), reason="no /proc to refuse root")
def test_no_permission(fetch: Fetch, plan: Path) -> None:
    # Not even root may make a folder there.
    said = fetch(1, "--config", plan, "--out", "/proc/corpus", "--email", "a@b.org")
    assert "/proc/corpus cannot be written to" in said
