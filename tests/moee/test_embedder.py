from __future__ import annotations

import copy
import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.numpy import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

from helpers.fresh_process import run_fresh
from helpers.small_language_models import WORDS
from sentence_experts import create_app
from sentence_experts.encoding.encode import encode
from sentence_experts.encoding.encoder import BatchEncoder, cosines
from sentence_experts.errors import InputError, SentenceExpertsError, UsageError
from sentence_experts.evaluation.moee.analysis import analyse
from sentence_experts.evaluation.moee.make_and_evaluate import make_embedder
from sentence_experts.models.files.fingerprint import source_fingerprint
from sentence_experts.models.loading import load
from sentence_experts.models.pooling import unit
from sentence_experts.models.sources import name_of
from sentence_experts.moee import FILE, STANDARD
from sentence_experts.moee.embedder import MoeEmbedder
from sentence_experts.moee.moee_config import MoeeConfig
from sentence_experts.moee.saved import load_embedder
from sentence_experts.moee.transformer import MoeTransformer
from sentence_experts.moee.vectors import PARTS
from sentence_experts.retrieval.search import search
from sentence_experts.storage import RECORD, write_json
from sentence_experts.training.run import train

OUT_OF_MEMORY = RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")


@pytest.fixture(scope="module")
def embedder(olmoe: Path) -> MoeEmbedder:
    return MoeEmbedder(str(olmoe), device="cpu")


def test_standard_scores_are_fitted_on_texts_as_they_are_read(olmoe, texts, tmp_path):
    embedder = MoeEmbedder(str(olmoe), device="cpu")
    embedder.prompts, embedder.default_prompt_name = {"query": "query: "}, "query"
    embedder.fit_standard(texts)
    read = embedder.standardized(embedder.states([f"query: {text}" for text in texts]))
    assert np.abs(read.hidden.mean(axis=0)).max() < 1e-3
    embedder.truncate_dim = 8
    embedder.save(str(tmp_path / "embedder"))
    assert load(tmp_path / "embedder", device="cpu").encode(texts).shape == (len(texts), 8)


def test_queries_and_documents_are_encoded_and_replaced_functions_noticed(olmoe):
    embedder = MoeEmbedder(str(olmoe), device="cpu")
    assert np.array_equal(embedder.encode_query(["rice"]), embedder.encode_document(["rice"]))
    layer = next(each for each in embedder.modules() if type(each).__name__.endswith("RMSNorm"))
    known = layer.forward
    layer.forward = lambda *args: 2 * known(*args)
    with pytest.raises(UsageError, match="was changed in memory"):
        _ = embedder.fingerprint


@pytest.mark.parametrize("argument", [{"route": "query"}, {"output_value": "token_embeddings"}])
def test_arguments_that_it_does_not_have_are_refused(embedder, argument):
    with pytest.raises(UsageError, match=next(iter(argument))):
        embedder.encode(["rice"], **argument)


def test_it_is_a_sentence_transformer(embedder, texts):
    assert isinstance(embedder, SentenceTransformer)
    vectors = embedder.encode(texts)
    assert vectors.shape == (len(texts), embedder.get_embedding_dimension())
    assert vectors.dtype == np.float32
    assert embedder.encode(texts[0]) == pytest.approx(vectors[0], abs=1e-6)  # equal bits where kernels allow
    assert np.array_equal(embedder.encode(texts, convert_to_tensor=True).numpy(), vectors)
    assert embedder.encode([]).shape == (0, vectors.shape[1])
    scaled = embedder.encode(texts, normalize_embeddings=True)
    assert np.linalg.norm(scaled, axis=1) == pytest.approx(1, abs=1e-6)
    assert embedder.encode(texts, truncate_dim=3).shape == (len(texts), 3)
    assert embedder.encode(texts, precision="int8").dtype == np.int8
    scores = [0.1, 0.5, 0.9]
    found = EmbeddingSimilarityEvaluator(texts[:3], texts[1:], scores, main_similarity="dot")(embedder)
    assert set(found) >= {"spearman_dot"}


def test_similarity_of_sum_is_the_papers(embedder, texts):
    states = embedder.states(texts)
    assert np.array_equal(embedder.states(texts[0]).hidden, embedder.states(texts[:1]).hidden)
    with pytest.raises(UsageError, match="the batches of an embedder"):
        BatchEncoder(embedder, batch_size=4)
    hidden, routing = (unit(part) @ unit(part).T for part in (states.hidden, states.routing))
    for alpha in (1.0, 0.3):
        other = embedder.with_parts("sum", alpha)
        found = other.similarity(other.encode(texts), other.encode(texts)).numpy()
        assert found == pytest.approx(hidden + alpha * routing, abs=1e-5)
    assert embedder.with_parts("rw").similarity_fn_name == "cosine"


def test_mean_tokens_and_all_layers(olmoe, texts):
    """Table 5: one text's states against the model's own hidden states."""
    import torch

    mean = MoeEmbedder(str(olmoe), tokens="mean", layers="all", prompt="none", device="cpu")
    found = mean.states(texts)
    ids = torch.tensor([mean.reader.token_ids(texts[:1])[0]])
    with torch.no_grad():
        output = mean.reader.model(ids, output_hidden_states=True, output_router_logits=True)
    hidden = torch.stack([layer[0].mean(0) for layer in output.hidden_states[1:]]).mean(0)
    assert np.abs(found.hidden[0] - hidden.numpy()).max() < 1e-5
    routing = torch.cat([logits.softmax(-1).mean(0) for logits in output.router_logits])
    assert np.abs(found.routing[0] - routing.numpy()).max() < 1e-5
    last = MoeEmbedder(str(olmoe), tokens="last", layers="last", prompt="none", device="cpu").states(texts)
    assert np.abs(last.routing[0] - output.router_logits[-1][-1].softmax(-1).numpy()).max() < 1e-5


def test_a_prompt_of_the_caller_stands_before_the_text(embedder, texts):
    joined = embedder.encode([f"green {text}" for text in texts])
    assert np.array_equal(embedder.encode(texts, prompt="green "), joined)
    other = embedder.with_prompt("style")
    assert np.abs(other.encode(texts) - embedder.encode(texts)).max() > 1e-3
    assert embedder.reader.prompt.template.startswith("This sentence")


@pytest.mark.parametrize(
    ("text", "said"), [("", "text 2 is empty"), (" \n", "text 2 is empty"), (float("nan"), "text 2 is nan")]
)
def test_what_is_no_text_is_named(embedder, text, said):
    with pytest.raises(InputError, match=said):
        embedder.encode(["rice", text, "wheat"])


@pytest.mark.parametrize(
    "wrong",
    [{"parts": "both"}, {"alpha": -1}, {"tokens": "first"}, {"layers": "2"}, {"weights": "raw"},
     {"standard": "fitted"}, {"dtype": "float7"}, {"quantize": "3bit"}, {"prompt": "no slot"},
     {"device_map": "auto"}],
)  # fmt: skip
def test_unknown_choices_name_the_known_ones(olmoe, wrong):
    with pytest.raises(UsageError, match=r"choose|alpha|Input should be|`device` and `device_map`"):
        MoeEmbedder(str(olmoe), device="cpu", **wrong)


def test_what_does_not_fit_into_memory_is_halved(olmoe, texts, monkeypatch):
    embedder = MoeEmbedder(str(olmoe), device="cpu")
    expected, forward = embedder.encode(texts), embedder.reader.forward
    sizes = []

    def small(features, **kwargs):
        sizes.append(len(features["input_ids"]))
        if sizes[-1] > 1:
            raise OUT_OF_MEMORY
        return forward(features, **kwargs)

    monkeypatch.setattr(embedder.reader, "forward", small)
    assert np.abs(embedder.encode(texts) - expected).max() < 1e-5
    assert sizes == [4, 2, 1, 1, 2, 1, 1]


def test_one_text_that_does_not_fit_keeps_what_was_read(olmoe, texts, monkeypatch, tmp_path):
    monkeypatch.setattr("sentence_experts.moee.embedder.TEXTS_PER_PART", 2)
    embedder = MoeEmbedder(str(olmoe), device="cpu", cache=tmp_path)
    forward, read = MoeTransformer.forward, []

    def full(reader, features, **kwargs):
        if len(read) == 1:
            raise OUT_OF_MEMORY
        read.append(features)
        return forward(reader, features, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(MoeTransformer, "forward", full)
        with pytest.raises(SentenceExpertsError, match=r"out of memory with a single text of \d+ tokens"):
            embedder.encode(texts)
    assert len(embedder.store.missing(texts)) == 2
    assert embedder.encode(texts).shape == (4, 28)


def test_all_parts_cost_one_reading(olmoe, texts, tmp_path, monkeypatch):
    embedder = MoeEmbedder(str(olmoe), device="cpu", cache=tmp_path)
    first = {part: embedder.with_parts(part).encode(texts) for part in PARTS}
    again = MoeEmbedder(str(olmoe), device="cpu", cache=tmp_path)
    plain = MoeEmbedder(str(olmoe), device="cpu").encode(texts)

    def never(*arguments, **kwargs):
        raise AssertionError("read again")

    monkeypatch.setattr(MoeTransformer, "forward", never)
    for part in PARTS:
        assert np.array_equal(again.with_parts(part).encode(texts), first[part])
    assert np.abs(plain - first["sum"]).max() < 2e-3  # kept as float16
    with pytest.raises(AssertionError, match="read again"):
        again.with_prompt("style").encode(texts)


def test_cached_states_are_those_of_the_settings_as_they_are_now(olmoe, texts, tmp_path):
    settings = {"device": "cpu", "prompt": "none", "parts": "hs"}
    embedder, plain = (MoeEmbedder(str(olmoe), cache=cache, **settings) for cache in (tmp_path, None))
    before, new = embedder.encode(texts[:2]), texts[2:]
    expected = plain.encode(texts)
    for each in (embedder, plain):
        each.max_seq_length = 2
    np.testing.assert_allclose(embedder.encode(texts), plain.encode(texts), atol=2e-3)  # kept as float16
    assert np.abs(embedder.encode(texts[:2]) - before).max() > 2e-3
    fresh = MoeEmbedder(str(olmoe), cache=tmp_path, **settings)
    np.testing.assert_allclose(fresh.encode(new), expected[2:], atol=2e-3)


@pytest.mark.parametrize("planted", [0.0, 0.5, 3.0])
def test_the_planted_alpha_is_chosen(embedder, planted):
    words = [word for word in WORDS if word.isalpha()]
    first, second = ([f"{words[n + by]} {words[-n]}" for n in range(1, 30)] for by in (0, 9))
    hidden, routing = (
        cosines(*(getattr(embedder.states(side), part) for side in (first, second)))
        for part in ("hidden", "routing")
    )
    choice = embedder.choose_alpha(first, second, list(hidden + planted * routing))
    assert choice.tried[planted] == pytest.approx(1)
    assert choice.alpha == min(a for a, value in choice.tried.items() if round(value, 6) == 1)
    for scores in ([1.0] * len(first), [1.0, 2.0]):
        with pytest.raises(UsageError, match="alpha needs"):
            embedder.choose_alpha(first[: len(scores)], second[: len(scores)], scores)
    with pytest.raises(UsageError, match="no alpha can be chosen"):
        embedder.choose_alpha(first, second, [float("nan"), *range(1, len(first))])


def test_standard_scores_are_fitted_once(olmoe, texts):
    embedder = MoeEmbedder(str(olmoe), parts="concat", device="cpu")
    embedder.fit_standard(texts)
    assert embedder.with_prompt(embedder.settings["prompt"]).fitted is embedder.fitted
    assert embedder.with_prompt("style").fitted is None
    found = embedder.encode(texts)
    assert found.mean(axis=0) == pytest.approx(0, abs=1e-5)
    assert np.abs(embedder.encode([texts[1]])[0] - found[1]).max() < 1e-4
    with pytest.raises(UsageError, match="1 calibration texts"):
        embedder.fit_standard(texts[:1])


def test_standard_scores_are_those_of_the_model_that_they_were_fitted_on(olmoe, texts, tmp_path):
    base = tmp_path / "base"
    shutil.copytree(olmoe, base)
    embedder = MoeEmbedder(str(base), parts="concat", device="cpu")
    embedder.fit_standard(texts)
    embedder.save(str(tmp_path / "fitted"))
    assert load(tmp_path / "fitted").encode(texts) == pytest.approx(embedder.encode(texts), abs=1e-5)
    weights = load_file(base / "model.safetensors")
    save_file(
        {name: 2 * weight for name, weight in weights.items()}, base / "model.safetensors", {"format": "pt"}
    )
    with pytest.raises(InputError, match=f"{base} has changed since standard scores were fitted on it"):
        load(tmp_path / "fitted")


def test_alpha_is_that_of_the_model_for_which_it_was_chosen(olmoe, texts, tmp_path):
    base = shutil.copytree(olmoe, tmp_path / "base")
    rated = [
        {"anchor": f"{text} {n}", "positive": f"{n} {text}", "score": n} for n in range(5) for text in texts
    ]
    pd.DataFrame(rated).to_csv(tmp_path / "rated.csv", index=False)
    made = {"develop": tmp_path / "rated.csv"}
    make_embedder(base, tmp_path / "chosen", **made)
    make_embedder(tmp_path / "chosen", tmp_path / "other parts", parts="hs")
    make_embedder(tmp_path / "other parts", tmp_path / "sum", parts="sum")
    make_embedder(base, tmp_path / "given", parts="sum", alpha=0.7)
    weights = load_file(base / "model.safetensors")
    save_file(
        {name: 2 * weight for name, weight in weights.items()}, base / "model.safetensors", {"format": "pt"}
    )
    for folder in ("chosen", "sum"):
        with pytest.raises(InputError, match=f"{base} has changed since alpha was chosen for it: make the"):
            load(tmp_path / folder)
        assert load_embedder(tmp_path / folder, MoeeConfig(alpha=0.3)).alpha == 0.3
        assert load_embedder(tmp_path / folder, MoeeConfig(parts="rw")).parts == "rw"
        with pytest.raises(InputError, match="has changed"):
            load_embedder(tmp_path / folder, MoeeConfig(parts="rw")).with_parts("sum")
    with pytest.raises(InputError, match="has changed"):
        analyse(tmp_path / "other parts", tmp_path / "rated.csv", out=tmp_path / "analysis")
    assert not (tmp_path / "analysis" / "states").exists()
    load(make_embedder(tmp_path / "chosen", tmp_path / "again", **made) and tmp_path / "again")
    assert load(tmp_path / "given").alpha == 0.7
    assert load(tmp_path / "other parts").parts == "hs"


def test_an_embedder_is_not_trained(olmoe, pairs_folder):
    embedder = MoeEmbedder(str(olmoe), device="cpu")
    with pytest.raises(UsageError, match=f"an embedder cannot be trained, only its language model: {olmoe}"):
        train(embedder, pairs_folder, max_steps=1)


@pytest.mark.parametrize("open_folder", [load, load_embedder])
def test_a_damaged_folder_is_refused_however_it_is_opened(olmoe, texts, tmp_path, open_folder):
    pd.DataFrame({"text": texts}).to_csv(tmp_path / "texts.csv", index=False)
    whole = tmp_path / "whole"
    make_embedder(olmoe, whole, calibrate=tmp_path / "texts.csv", column="text", parts="sum", alpha=0.5)
    assert open_folder(whole).alpha == 0.5
    assert name_of(open_folder(whole)) == "whole"
    for number, (name, old, new) in enumerate(
        [
            (FILE, b"0.5", b"9.5"),
            (FILE, b'"fitted"', b'"fitter"'),
            (STANDARD, b"\0", b"\1"),
            (RECORD, b"{", b"["),
            (RECORD, b'"files": {', b'"files": null, "flies": {'),
        ]
    ):
        damaged = shutil.copytree(whole, tmp_path / str(number))
        content = (damaged / name).read_bytes()
        assert old in content
        (damaged / name).write_bytes(new.join(content.rsplit(old, 1)))
        with pytest.raises(InputError):
            open_folder(damaged)


@pytest.mark.parametrize("standard", [None, "batch", "faithful", "fitted"])
def test_a_folder_gives_the_same_vectors_in_a_fresh_process(olmoe, texts, tmp_path, standard):
    fitted = standard == "fitted"
    settings = {"parts": "sum", "alpha": 0.7, "prompt": "tone", "device": "cpu", "standard_batch": 3}
    embedder = MoeEmbedder(str(olmoe), standard=None if fitted else standard, **settings)
    if fitted:
        embedder.fit_standard(texts)
    folder = tmp_path / "embedder"
    embedder.save(str(folder))
    expected = embedder.encode(texts)
    code = (
        "import json, sys, numpy as np\n"
        "from sentence_experts.encoding.encoder import BatchEncoder\n"
        "from sentence_experts.models.loading import load\n"
        "encoder = BatchEncoder(load(sys.argv[1], device='cpu'))\n"
        "print(json.dumps([encoder.fingerprint, encoder.encode(json.loads(sys.argv[2])).tolist()]))"
    )
    done = run_fresh(code, folder, json.dumps(texts))
    assert done.returncode == 0, done.stderr
    fingerprint, vectors = json.loads(done.stdout.splitlines()[-1])
    assert np.abs(np.array(vectors) - expected).max() < 1e-5
    assert fingerprint == embedder.fingerprint
    assert not list(folder.glob("*model*"))  # the weights stay where they are


def test_an_embedder_that_has_read_texts_can_be_pickled(olmoe, texts):
    embedder = MoeEmbedder(olmoe, parts="concat", layers="all", device="cpu")
    vectors = embedder.encode(texts)
    for again in (pickle.loads(pickle.dumps(embedder)), copy.deepcopy(embedder)):
        np.testing.assert_allclose(again.encode(texts), vectors, atol=1e-6)
    np.testing.assert_allclose(embedder.encode(texts), vectors, atol=1e-6)


def test_a_folder_cannot_allow_code_to_run(olmoe, tmp_path):
    MoeEmbedder(str(olmoe), device="cpu", trust_remote_code=True).save(str(tmp_path))
    with pytest.raises(UsageError, match=f"{tmp_path}: .* its own code.*`trust_remote_code=True`"):
        load(tmp_path)
    assert load(tmp_path, trust_remote_code=True).settings["trust_remote_code"]
    assert load_embedder(str(tmp_path), MoeeConfig.of(trust_remote_code=True)).settings["trust_remote_code"]
    MoeEmbedder(str(olmoe), device="cpu").save(str(tmp_path))
    assert not load(tmp_path).settings["trust_remote_code"]


def test_a_maximum_length_is_taken_saved_and_leaves_an_embedder_in_memory_alone(
    olmoe, texts, tmp_path, caplog
):
    long = " ".join(texts)
    embedder = MoeEmbedder(str(olmoe), prompt="none", device="cpu")
    embedder.save(str(tmp_path / "own"))
    expected = MoeEmbedder(str(olmoe), prompt="none", device="cpu", max_length=3).encode(long)
    before = embedder.encode(long)
    shorter = load(embedder, max_length=3)
    load(shorter, max_length=4)
    assert "`max_length=4`: the model reads 3 tokens" in caplog.text
    shorter.save(str(tmp_path / "shorter"))
    for other in (shorter, load(tmp_path / "own", max_length=3, device="cpu"), load(tmp_path / "shorter")):
        np.testing.assert_allclose(other.encode(long), expected, atol=1e-6)
    assert np.array_equal(embedder.encode(long), before)
    assert np.abs(before - expected).max() > 1e-3


def test_what_decides_a_vector_is_in_the_fingerprint(olmoe, texts):
    embedder = MoeEmbedder(str(olmoe), device="cpu")
    others = [
        embedder.with_parts("sum", 2.0),
        embedder.with_parts("hs"),
        embedder.with_prompt("none"),
        MoeEmbedder(str(olmoe), tokens="mean", device="cpu"),
        MoeEmbedder(str(olmoe), wording="code", device="cpu"),
        MoeEmbedder(str(olmoe), standard="batch", device="cpu"),
        MoeEmbedder(str(olmoe), standard="batch", standard_batch=2, device="cpu"),
        MoeEmbedder(str(olmoe), parts="concat", device="cpu"),
    ]
    assert len({each.fingerprint for each in [embedder, *others]}) == 1 + len(others)
    assert embedder.with_parts("hs", 2.0).fingerprint == embedder.with_parts("hs", 1.0).fingerprint


def test_a_folder_of_other_things_is_not_replaced(olmoe, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="holds no embedder"):
        MoeEmbedder(str(olmoe), device="cpu").save(str(tmp_path))


def test_the_fingerprint_follows_the_prompts(olmoe: Path):
    embedder = MoeEmbedder(str(olmoe), device="cpu")
    seen = [embedder.fingerprint]
    for text in ("Retrieve the crop: ", "Name the organ: "):
        embedder.prompts = {**embedder.prompts, "sts": text}
        seen.append(embedder.fingerprint)
    assert len(set(seen)) == 3
    embedder.prompts["sts"] = ""
    assert embedder.fingerprint == seen[0]


def test_prompts_and_the_default_one_are_saved(olmoe: Path, texts: list[str], tmp_path: Path) -> None:
    embedder = MoeEmbedder(str(olmoe), device="cpu")
    embedder.prompts = {"crop": "Retrieve the crop: "}
    without = embedder.fingerprint
    embedder.default_prompt_name = "crop"
    assert embedder.fingerprint != without
    embedder.save(str(tmp_path / "saved"))
    loaded = load(tmp_path / "saved", device="cpu")
    assert loaded.fingerprint == embedder.fingerprint
    np.testing.assert_allclose(loaded.encode(texts), embedder.encode(texts), atol=1e-6)
    file = tmp_path / "saved" / "moee.json"  # earlier versions wrote neither
    content = {name: value for name, value in json.loads(file.read_text()).items() if "prompt" not in name}
    write_json(file, {**content, "prompt": embedder.settings["prompt"]})
    (tmp_path / "saved" / "made_from.json").unlink()
    assert (
        load(tmp_path / "saved", device="cpu").fingerprint
        == MoeEmbedder(str(olmoe), device="cpu").fingerprint
    )


def test_standard_scores_of_a_batch_do_not_depend_on_how_many_texts_are_encoded_at_once(
    olmoe: Path, texts: list[str], tmp_path: Path
) -> None:
    embedder = MoeEmbedder(str(olmoe), device="cpu", standard="batch", standard_batch=5)
    expected = embedder.encode(texts, convert_to_numpy=True)
    for size in (3, 7, 1000):
        np.testing.assert_allclose(encode(embedder, texts, chunk_size=size), expected, atol=1e-5)
        found = encode(embedder, texts, out=tmp_path / f"{size}.npy", chunk_size=size).vectors()
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_the_hash_of_an_embedder_s_folder_covers_its_language_model(olmoe: Path, tmp_path: Path) -> None:
    base = shutil.copytree(olmoe, tmp_path / "base")
    MoeEmbedder(str(base), device="cpu").save(str(tmp_path / "embedder"))
    before = source_fingerprint(str(tmp_path / "embedder"), None)
    config = base / "config.json"
    config.write_text(config.read_text() + "\n")
    assert source_fingerprint(str(tmp_path / "embedder"), None) != before


def test_another_alpha_is_another_embedder_whatever_its_parts(olmoe: Path, tmp_path: Path) -> None:
    for alpha in (1.0, 2.0):
        out = tmp_path / str(alpha)
        make_embedder(str(olmoe), out, parts="rw", alpha=alpha)
        assert make_embedder(str(olmoe), out, parts="rw", alpha=alpha).alpha == alpha
        with pytest.raises(UsageError, match="made with another alpha"):
            make_embedder(str(olmoe), out, parts="rw", alpha=5.0)


def test_a_language_model_that_was_replaced_after_it_was_loaded_gives_no_hash(olmoe, texts, tmp_path):
    base = shutil.copytree(olmoe, tmp_path / "base")
    embedder = MoeEmbedder(base, device="cpu")
    (tmp_path / "base").rename(tmp_path / "old")
    shutil.copytree(olmoe, base)
    with pytest.raises(InputError, match=f"{base} has changed since it was loaded: load it again"):
        encode(embedder, texts, out=tmp_path / "vectors.npy")
    assert not (tmp_path / "vectors.npy").exists()
    again = MoeEmbedder(base, device="cpu")
    known = again.base_fingerprint
    (base / "config.json").touch()
    assert again.with_parts("rw").base_fingerprint == known
    assert again.with_prompt("none").base_fingerprint == known


@pytest.mark.parametrize("change", ["weights", "data", "number type", "adapter"])
def test_a_language_model_that_was_changed_in_memory_gives_vectors_alone(
    tmp_path: Path, olmoe: Path, change: str
) -> None:
    texts = ["rice and wheat", "neurons"]
    embedder = MoeEmbedder(olmoe, parts="rw", device="cpu")
    cached = MoeEmbedder(olmoe, parts="rw", device="cpu", cache=tmp_path / "cache")
    before = embedder.encode(texts)
    cached.encode(texts)
    for changed in (embedder, cached):
        if change == "weights":
            with torch.no_grad():
                for weight in changed.parameters():
                    weight.mul_(1.5)
        elif change == "data":
            for weight in changed.parameters():
                weight.data *= 1.5  # as a LoRA is merged
        elif change == "number type":
            changed.bfloat16()
        else:
            from peft import LoraConfig

            changed.reader.auto_model.add_adapter(
                LoraConfig(target_modules=["q_proj"], init_lora_weights=False, r=2), "one"
            )
    assert np.abs(embedder.encode(texts) - before).max() > 1e-5
    uses = [
        lambda: cached.encode(texts),
        lambda: encode(embedder, texts, out=tmp_path / "vectors.npy"),
        lambda: embedder.save(str(tmp_path / "out")),
    ]
    for use in uses:
        with pytest.raises(UsageError, match=f"the language model {olmoe} was changed in memory"):
            use()
    assert {path.name for path in tmp_path.iterdir()} == {"cache"}


def test_shorter_vectors_are_those_of_the_model_too(olmoe, texts):
    embedder = MoeEmbedder(str(olmoe), parts="hs", device="cpu")
    whole = embedder.encode(texts)
    embedder.truncate_dim = 8
    assert np.array_equal(embedder.encode(texts), whole[:, :8])
    assert embedder.get_embedding_dimension() == 8
    assert embedder.encode(texts, truncate_dim=4).shape[1] == 4
    assert embedder.fingerprint != MoeEmbedder(str(olmoe), parts="hs", device="cpu").fingerprint


@pytest.mark.parametrize("standard", ["batch", "faithful"])
def test_vectors_that_depend_on_their_batch_are_not_searched(olmoe, tmp_path, standard):
    embedder = MoeEmbedder(str(olmoe), parts="hs", device="cpu", standard=standard)
    rows = [{"paper_id": "a", "title": "Sleep"}, {"paper_id": "b", "title": "Rice"}]
    for use in (lambda: search(embedder, pd.DataFrame(rows), "Sleep"), lambda: create_app({"m": embedder})):
        with pytest.raises(UsageError, match="standard scores of each batch"):
            use()


def test_a_cache_stays_where_it_was_made(
    olmoe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "one")
    embedder = MoeEmbedder(olmoe, cache=Path("cache"))
    embedder.save(tmp_path / "embedder")
    before = embedder.encode(["rice"])
    monkeypatch.chdir(tmp_path / "two")
    assert np.array_equal(load(tmp_path / "embedder").encode(["rice"]), before)
    assert not any((tmp_path / "two").iterdir())


def test_no_texts_are_refused(olmoe: Path) -> None:
    embedder = MoeEmbedder(olmoe)
    for read in (embedder.states, embedder.fit_standard):
        with pytest.raises(UsageError, match="`texts`: none are given"):
            read([])
