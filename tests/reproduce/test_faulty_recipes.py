"""A recipe with a mistake is refused in one line, which names the file and the key."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from sentence_experts.errors import InputError
from sentence_experts.recipes import RECIPES
from sentence_experts.reproduce.run import plan_recipe

# PAPER/RECIPE, and /PART where the mistake is in another file; what stands there, the mistake, the message.
FAULTY = [
    ("hallee2025/moe_all", "runs:", "rums:", r"moe_all\.yaml: rums: no such setting; did you mean runs"),
    ("hallee2025/moe_all", "base:", "bass:", r"moe_all\.yaml: runs\.0\.bass: "),
    ("hallee2025/moe_all", ": protocol.yaml", ": protocols.yaml", r"protocols\.yaml: .*no such file"),
    ("hallee2025/moe_all/protocol", ": neuroscience", ": neurology", r"small\.domains: 'neurology' is none"),
    ("hallee2025/moe_all/protocol", "kind: pairs", "kind: pears", r"protocol\.yaml: kind: .*'pears'"),
    ("hallee2025/moe_all/protocol", ": published.yaml", ": numbers.yaml", r"numbers\.yaml: .*no such file"),
    ("mote/ea", "average_of: EOB", "average_of: EB", r"runs\.EA\.average_of: 'EB' is none of"),
    ("mote/ea", "average_of: EOB", "base: x\n    average_of: EOB", r"give one of base and average_of"),
    ("mote/em/protocol", "simulated: simulated", "simulated: no", r"no_tasks\.yaml: no such file"),
    ("mote/em/tasks", "kind: pairs", "kind: pears", r"tasks\.yaml: .*no kind 'pears'"),
]


@pytest.mark.parametrize(("place", "old", "new", "message"), FAULTY)
def test_a_mistake_is_named_by_file_and_key(
    tmp_path: Path, place: str, old: str, new: str, message: str
) -> None:
    paper, recipe, *part = place.split("/")
    folder = shutil.copytree(RECIPES / paper, tmp_path / paper)
    changed = folder / f"{part[0] if part else recipe}.yaml"
    text = changed.read_text(encoding="utf-8")
    assert old in text
    changed.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        plan_recipe(folder / f"{recipe}.yaml", out=tmp_path)
    assert re.search(message, str(caught.value))
    assert "\n" not in str(caught.value)
