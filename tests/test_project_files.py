"""The files about the project agree with each other and with what they name."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import sentence_experts

REPOSITORY = Path(__file__).resolve().parent.parent
PROJECT: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]
WORKFLOWS = sorted((REPOSITORY / ".github" / "workflows").glob("*.yml"))
NOT_IN_ALL = {"all", "dev", "spark", "wandb"}


def test_one_version() -> None:
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text(encoding="utf-8"))
    changelog = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    released = re.findall(r"^## \[(\d\S*)\] - (\S+)", changelog, flags=re.MULTILINE)[0]
    assert PROJECT["version"] == sentence_experts.__version__ == citation["version"] == released[0]
    assert str(citation["date-released"]) == released[1]


def test_citation_names_the_four_papers() -> None:
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text(encoding="utf-8"))
    assert [each["authors"][0]["family-names"] for each in citation["references"]] == [
        "Hallee",
        "Kapur",
        "Romero",
        "Li",
    ]
    assert all(each.get("doi") or each.get("url") for each in citation["references"])


def test_extra_all_has_every_extra_but_those_named() -> None:
    extras = PROJECT["optional-dependencies"]
    (requirement,) = extras["all"]
    assert set(requirement.partition("[")[2].rstrip("]").split(",")) == extras.keys() - NOT_IN_ALL


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_pin_actions_and_call_targets_that_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] == {"contents": "read"}
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    for step in steps:
        if "uses" in step:
            assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", step["uses"])
            assert re.search(re.escape(step["uses"]) + r" # v\d+\.\d+\.\d+$", text, flags=re.MULTILINE)
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"\bmake ([\w-]+)", "\n".join(step.get("run", "") for step in steps)):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


def test_pre_commit_has_the_pinned_ruff() -> None:
    pinned = re.search(
        r"^ruff==.*$", (REPOSITORY / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE
    )
    config = yaml.safe_load((REPOSITORY / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    assert pinned
    for hook in config["repos"][0]["hooks"]:
        assert hook["additional_dependencies"] == [pinned.group()]


@pytest.mark.parametrize("path", sorted((REPOSITORY / ".github" / "ISSUE_TEMPLATE").glob("*.yml")))
def test_issue_templates_are_forms(path: Path) -> None:
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    if path.name != "config.yml":
        assert form["name"]
        assert form["description"]
        assert all(part["type"] == "textarea" for part in form["body"])
