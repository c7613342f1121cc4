"""Names are one line without white space at the ends, wherever they come in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentence_experts.corpus.config import FetchConfig
from sentence_experts.errors import InputError, UsageError
from sentence_experts.evaluation.models import model_runs
from sentence_experts.models.routes.route_tokens import domain_token
from sentence_experts.names import DOMAIN, EXPERT, FOLDER, LABEL, NameRule
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.tasks.task_file import TaskFile

RULES = [DOMAIN, FOLDER, EXPERT, LABEL]


@pytest.mark.parametrize("rule", RULES)
@given(name=st.text(max_size=6))
def test_allowed_names_are_one_clean_line(rule: NameRule, name: str) -> None:
    try:
        rule.check("thing", name)
    except ValueError:
        return
    assert name == name.strip()
    assert name.splitlines() == [name]
    assert name.encode("utf-8")


@pytest.mark.parametrize("rule", RULES)
def test_usual_names_are_allowed(rule: NameRule) -> None:
    rule.check("thing", "neuro", "skin-cancer", "Copd_2")


@pytest.mark.parametrize("name", ["neuro\n", " neuro", "neuro\t", "ne\x00uro", "", "x" * 101])
def test_such_names_are_refused_at_every_entrance(name: str) -> None:
    with pytest.raises(UsageError, match="domain name"):
        FetchConfig.of(domains={name: "q"})
    with pytest.raises(UsageError, match="expert name"):
        domain_token(name)
    with pytest.raises(UsageError, match="model name"):
        model_runs({name: "minilm"})
    with pytest.raises(InputError, match="domain name"):
        Pairs.of([{"anchor": "a", "positive": "b", "domain": name}])
    task = {"kind": "pairs", "datasets": {"d": {"file": "x.csv"}}}
    for tasks in ({name: task}, {"t": {**task, "instructions": {name: "x: "}}}):
        with pytest.raises(InputError, match="name"):
            TaskFile.from_mapping(tasks)
