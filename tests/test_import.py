"""`import sentence_experts` is light, and what it names is there."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import sentence_experts
from sentence_experts.encoding.config import EncodeConfig
from sentence_experts.training.config import TrainConfig

CODE = """
import sys
import sentence_experts
print(*[name for name in ("torch", "transformers", "sentence_transformers", "datasets", "pandas", "pyarrow")
         if name in sys.modules])
"""


def test_import_is_light() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert not done.stdout.split()


def test_public_names_are_there() -> None:
    for name in sentence_experts.__all__:
        assert getattr(sentence_experts, name) is not None
        assert name in dir(sentence_experts)
    with pytest.raises(AttributeError, match="nonsense"):
        _ = sentence_experts.nonsense


def test_signatures_show_every_setting() -> None:
    shown = {}
    for name in sentence_experts.__all__:
        function = getattr(sentence_experts, name)
        if inspect.isfunction(function) and "config" in inspect.signature(function).parameters:
            shown[name] = set(inspect.signature(function).parameters)
            assert "settings" not in shown[name], name
    assert shown["train"] >= TrainConfig.model_fields.keys()
    assert shown["encode"] >= {*EncodeConfig.model_fields, "load_config", "out"}
    assert len(shown) > 20


# transformers imports its auto classes in the middle of importing a model's own files, so what comes first
# decides which of its modules are only half there when ours are registered.
FIRST = [
    "pass",
    "from transformers import AutoModel",
    "from transformers import BertConfig",
    "import transformers; transformers.NomicBertConfig",
    "from transformers import AutoTokenizer",
    "import sentence_experts.models.architectures.configs",
]
THEN = "from transformers import AutoConfig; print(type(AutoConfig.for_model('bert_experts')))"


@pytest.mark.slow
@pytest.mark.parametrize("first", FIRST)
def test_any_import_may_come_before_registration(first: str) -> None:
    code = f"{first}; import sentence_experts.register; {THEN}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "BertExpertsConfig" in done.stdout, done.stderr[-2000:]
