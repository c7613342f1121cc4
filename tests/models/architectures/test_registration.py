"""Stock loaders and the model types: with the explicit import, with `trust_remote_code`, without either."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

import sentence_experts
from helpers.fresh_process import run_fresh
from sentence_experts.models.encoder import ExpertEncoder
from sentence_experts.models.files.saving import save

NAMES = ["copd", "cvd"]
TEXTS = ["[COPD]the heart", "[CVD]lungs"]
LOAD = """
import sys
from sentence_transformers import SentenceTransformer
model = SentenceTransformer(sys.argv[1], device="cpu"{options})
print(model.encode({texts!r}).tobytes().hex())
"""


# As if the package were not installed.
REFUSED = """
import sys
class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "sentence_experts":
            raise ModuleNotFoundError(f"No module named '{name}'")
sys.meta_path.insert(0, Refused())
"""


@pytest.fixture(scope="module")
def encoder(bases: dict[str, SentenceTransformer]) -> ExpertEncoder:
    return sentence_experts.extend(bases["bert"], NAMES)


@pytest.fixture(scope="module")
def folder(encoder: ExpertEncoder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    save(encoder, tmp_path_factory.mktemp("saved") / "model")
    return tmp_path_factory.getbasetemp() / "saved0" / "model"


def modules_in(folder: Path) -> str:
    """Code that lets transformers keep the files of remote code in a folder."""
    return f"import transformers.dynamic_module_utils as remote; remote.HF_MODULES_CACHE = {str(folder)!r}\n"


def loading(options: str = "") -> str:
    return LOAD.format(options=options, texts=TEXTS)


def test_trust_remote_code_needs_no_import(encoder: ExpertEncoder, folder: Path, tmp_path: Path) -> None:
    done = run_fresh(modules_in(tmp_path) + loading(", trust_remote_code=True"), folder)
    assert done.returncode == 0, done.stderr[-2000:]
    vectors = np.frombuffer(bytes.fromhex(done.stdout.strip()), np.float32).reshape(2, -1)
    assert np.allclose(vectors, encoder.encode(TEXTS), atol=1e-6)


def test_without_import_or_flag_the_loader_asks(folder: Path) -> None:
    done = run_fresh(loading(), folder)
    assert done.returncode != 0
    assert "trust_remote_code=True" in done.stderr


def test_a_missing_package_is_named(folder: Path, tmp_path: Path) -> None:
    done = run_fresh(REFUSED + modules_in(tmp_path) + loading(", trust_remote_code=True"), folder)
    assert done.returncode != 0
    assert "pip install sentence_experts" in done.stderr


@pytest.mark.parametrize("trust", [None, False, True])
def test_registered_types_need_no_remote_code(
    encoder: ExpertEncoder, folder: Path, trust: bool | None
) -> None:
    options = {} if trust is None else {"trust_remote_code": trust}
    stock = SentenceTransformer(str(folder), device="cpu", **options)
    assert type(stock[0].auto_model) is type(encoder[0].auto_model)
    assert np.array_equal(stock.encode(TEXTS), encoder.encode(TEXTS))


def test_a_model_loaded_by_a_stock_loader_is_saved_as_ours(folder: Path, tmp_path: Path) -> None:
    stock = SentenceTransformer(str(folder), device="cpu", trust_remote_code=True)
    stock.save_pretrained(str(tmp_path / "again"), create_model_card=False)
    for name in ("config.json", "modeling_sentence_experts.py"):
        assert (tmp_path / "again" / name).read_text() == (folder / name).read_text()
    assert len(list((tmp_path / "again").rglob("*.py"))) == 1


def test_the_config_names_the_classes(folder: Path) -> None:
    assert json.loads((folder / "config.json").read_text())["auto_map"] == {
        "AutoConfig": "modeling_sentence_experts.BertExpertsConfig",
        "AutoModel": "modeling_sentence_experts.BertExpertsModel",
    }
    assert len((folder / "modeling_sentence_experts.py").read_text().splitlines()) <= 10
