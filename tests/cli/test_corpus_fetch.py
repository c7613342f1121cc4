"""`corpus fetch` from the command line: one clear line for a user's first mistakes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

VERB = [str(Path(sys.executable).with_name("sentence-experts")), "corpus", "fetch"]
# Port 9 (discard) is closed here: nobody answers.
NOBODY = "services:\n" + "".join(
    f"  {name}: {{url: 'http://127.0.0.1:9', per_second: 100}}\n"
    for name in ("entrez", "pmc_bucket", "icite")
)


def fetch(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    known = {name: value for name, value in os.environ.items() if not name.startswith("NCBI_")}
    return subprocess.run(
        [*VERB, *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**known, **environment},
        timeout=120,
    )


def one_line(done: subprocess.CompletedProcess[str], code: int) -> str:
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert len(lines) == 1, done.stderr
    return lines[0]


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.yaml"
    path.write_text("domains: {copd: '\"Asthma\"[MeSH]'}\n" + NOBODY)
    return path


def test_no_email(tmp_path: Path) -> None:
    said = one_line(fetch("--domains", "a=asthma[MeSH]", "--out", tmp_path / "c"), 2)
    assert "--email you@example.org" in said
    assert not (tmp_path / "c").exists()


def test_invalid_email(tmp_path: Path) -> None:
    said = one_line(fetch("--domains", "a=asthma[MeSH]", "--out", tmp_path / "c", "--email", "me"), 2)
    assert "--email: not an email address (got 'me')" in said


def test_no_domain(tmp_path: Path) -> None:
    assert "--domains: give at least one NAME=QUERY" in one_line(fetch("--out", tmp_path / "c"), 2)
    assert "not of the form NAME=QUERY" in one_line(fetch("--domains", "asthma", "--out", tmp_path / "c"), 2)


def test_bad_values_are_refused(tmp_path: Path, plan: Path) -> None:
    mine = ("--config", plan, "--out", tmp_path / "c", "--email", "a@b.org")
    assert "--licences" in one_line(fetch(*mine, "--licences", "free"), 2)
    assert "--citations" in one_line(fetch(*mine, "--citations", "scopus"), 2)
    bad = fetch("--domains", "my domain=q", "--out", tmp_path / "c", "--email", "a@b.org")
    assert "letters, digits" in one_line(bad, 2)
    plan.write_text("domains: [a, b]")
    assert "plan.yaml: domains" in one_line(fetch(*mine), 1)
    plan.write_text("- a")
    assert "'key: value' lines" in one_line(fetch(*mine), 1)
    assert "none.yaml" in one_line(fetch(*mine[2:], "--config", tmp_path / "none.yaml"), 1)


def test_fetch_without_network_is_one_error(tmp_path: Path, plan: Path) -> None:
    mine = ("--config", plan, "--out", tmp_path / "c", "--attempts", "2")
    said = one_line(fetch(*mine, NCBI_EMAIL="a@b.org"), 1)
    assert "cannot reach 127.0.0.1:9" in said
    assert "are you online?" in said


@pytest.mark.skipif(os.geteuid() == 0 and not os.path.exists("/proc/1"), reason="no /proc to refuse root")
def test_no_permission(plan: Path) -> None:
    # Not even root may make a folder there.
    said = one_line(fetch("--config", plan, "--out", "/proc/corpus", "--email", "a@b.org"), 1)
    assert "/proc/corpus cannot be written to" in said
