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
    ("hallee2025/moe_all", "pooling: mean", "pooling: max", r"extend: `pooling`: .*'mean', 'cls'"),
    ("hallee2025/moe_all", ": protocol.yaml", ": protocols.yaml", r"protocols\.yaml: .*no such file"),
    ("hallee2025/moe_all/protocol", "batch_size:", "batchsize:", r"train: `batchsize`: no such setting"),
    ("hallee2025/moe_all/protocol", "loss: argmax_target", "loss: argmax", r"train: `loss`: .*got 'argmax'"),
    ("hallee2025/moe_all/protocol", "split: random", "split: randomly", r"`split`: .*got 'randomly'"),
    ("hallee2025/moe_all/protocol", "cvd: neuroscience", "cvs: neuroscience", r"small\.domains: 'cvs' is"),
    ("hallee2025/moe_all/protocol", "kind: pairs", "kind: pears", r"protocol\.yaml: kind: .*'pears'"),
    ("hallee2025/moe_all/protocol", ": published.yaml", ": numbers.yaml", r"numbers\.yaml: .*no such file"),
    ("mote/ea", "average_of: EOB", "average_of: EB", r"ea\.yaml: runs\.EA\.average_of: 'EB' is none of"),
    ("mote/ea", "average_of: EOB", "base: x\n    average_of: EOB", r"give one of base and average_of"),
    ("mote/ea", "Table 7: EA", "Table 7: AE", r"runs\.EA\.columns: 'AE' is none of EA, IEM, MoTE"),
    ("mote/em", "tables: [Table 2", "tables: [Table 9", r"em\.yaml: tables: 'Table 9' is none of"),
    ("mote/tlr", "router: token", "router: tokens", r"protocol\.yaml: extend: `router`: .*got 'tokens'"),
    ("mote/static", "curriculum: static", "curriculum: fixed", r"train: `curriculum`: .*got 'fixed'"),
    ("mote/em/protocol", "batch_size: 6144", "batchsize: 1", r"train: `batchsize`: no such setting"),
    ("mote/em/protocol", "max_train: 600", "max_trian: 600", r"protocol\.yaml: compile_tasks: `max_trian`"),
    ("mote/em/protocol", "simulated: simulated", "simulated: no", r"no_tasks\.yaml: no such file"),
    ("mote/em/tasks", "kind: pairs", "kind: pears", r"tasks\.yaml: .*no kind 'pears'"),
    ("moee/olmoe", "model: OLMoE", "model: OMoE", r"'OMoE.*' is none of DeepSeekMoE-16b"),
    ("moee/olmoe", "model:", "prompt: tone\nmodel:", r"prompt: no such setting"),
    ("moee/olmoe/protocol", "prompts: [none", "prompts: [tonne", r"prompts: 'tonne' is none of "),
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
