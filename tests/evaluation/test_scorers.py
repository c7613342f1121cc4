from __future__ import annotations

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics.pairwise import paired_cosine_distances

from helpers.samples import make_tiny_encoder
from helpers.small_language_models import make_language_model
from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.errors import InputError, RouteError
from sentence_experts.evaluation.scorers import encoder_score, routes_by_domain, score_pairs, tfidf_scorer
from sentence_experts.models.loading import load
from sentence_experts.moee.embedder import MoeEmbedder
from sentence_experts.pairs.dataset import Pairs

DOMAINS = ["crops", "neuro"]
ANCHORS = ["rice yield in drought", "wheat rust"]
POSITIVES = ["drought and rice", "sleep and memory"]


def test_tfidf_is_fitted_per_domain_on_training_texts(caplog):
    training = {"crops": ["rice drought wheat", "rust wheat yield", "memory rice"], "neuro": ["axon sleep"]}
    scorer = tfidf_scorer(training)
    expected = TfidfVectorizer(max_features=4096).fit(training["crops"])
    distances = paired_cosine_distances(expected.transform(ANCHORS), expected.transform(POSITIVES))
    assert scorer.score(ANCHORS, POSITIVES, "crops") == pytest.approx(1 - distances)
    assert not caplog.messages
    scorer.score(ANCHORS, POSITIVES, "elsewhere")
    [message] = caplog.messages
    assert message.endswith("on the texts that are evaluated: none is for training in domain 'elsewhere'")
    assert scorer.settings()["fitted_on"] == {"crops": "train", "elsewhere": "evaluated"}


def test_tfidf_reads_scripts_without_spaces():
    same, other = "水稻在干旱中的产量", "记忆与睡眠"
    scores = tfidf_scorer({}).score([same, same, "a 水b cd"], [f"干旱与{same}", other, "cd 水"], "d")
    assert scores[0] > 0.5 > scores[1] == 0
    assert scores[2] == 1


def test_tfidf_of_unknown_texts_is_zero_and_without_words_an_error():
    assert tfidf_scorer({"d": ["some words"]}).score(["zebra", ""], ["some", "words"], "d").tolist() == [0, 0]
    with pytest.raises(InputError, match="TF-IDF cannot be fitted on domain d"):
        tfidf_scorer({}).score(["", "."], ["", "!"], "d")


def test_pairs_of_equal_texts_are_ties(experts_model):
    texts = [f"{topic} of {place} in year {year}" for topic in ("rice", "sleep") for place in POSITIVES
             for year in range(20)]  # fmt: skip
    encoder = BatchEncoder(load(experts_model, device="cpu"))
    for score in (tfidf_scorer({"crops": texts}).score, scored_by(encoder)):
        assert set(score(texts, texts, "crops").tolist()) == {1.0}


def scored_by(encoder, route_map=None, cache=None):
    return encoder_score(encoder, routes_by_domain(encoder.known_routes, DOMAINS, route_map), cache=cache)


def test_scores_are_the_stock_cosines_with_the_domains_route(pairs_folder, experts_model):
    encoder = BatchEncoder(load(experts_model, device="cpu"), batch_size=4)
    table = Pairs.open(pairs_folder).split("test")
    scores = score_pairs(scored_by(encoder), table)
    for row in (0, table.num_rows - 1):
        pair = table.slice(row, 1).to_pylist()[0]
        a, b = encoder.model.encode([pair["anchor"], pair["positive"]], prompt_name=pair["domain"])
        assert scores[row] == pytest.approx(a @ b / np.linalg.norm(a) / np.linalg.norm(b), abs=1e-5)
    crossed = scored_by(encoder, {"crops": "neuro", "neuro": "crops"})
    assert np.abs(score_pairs(crossed, table) - scores).max() > 1e-4


def test_missing_route_error_names_domain_routes_and_setting(experts_model, plain_model):
    known = BatchEncoder(load(experts_model, device="cpu")).known_routes
    assert routes_by_domain(known, DOMAINS) == {"crops": "crops", "neuro": "neuro"}
    with pytest.raises(RouteError, match=r"domain 'cvd'; its routes: crops, neuro; .*`route_map` cvd=ROUTE"):
        routes_by_domain(known, ["crops", "cvd"], {})
    with pytest.raises(RouteError, match=r"no route for domain 'cvd'; its routes: crops, neuro$"):
        routes_by_domain(known, ["cvd"])
    assert routes_by_domain(known, ["crops", "cvd"], {"cvd": "neuro"})["cvd"] == "neuro"
    with pytest.raises(RouteError, match="no route 'x'; its routes: crops, neuro"):
        routes_by_domain(known, ["crops"], {"crops": "x"})
    plain = BatchEncoder(load(plain_model, device="cpu")).known_routes
    assert routes_by_domain(plain, DOMAINS) == {"crops": None, "neuro": None}


def test_vectors_are_cached_per_model_and_route(pairs_folder, plain_model, experts_model, tmp_path):
    folder = Pairs.open(pairs_folder)
    encoder = BatchEncoder(load(plain_model, device="cpu"))
    score = scored_by(encoder, cache=tmp_path)
    expected = score_pairs(scored_by(encoder), folder.split("test"))
    assert score_pairs(score, folder.split("test")) == pytest.approx(expected, abs=1e-6)
    score_pairs(score, folder.split("validation"))
    assert len(list(tmp_path.iterdir())) == 1
    encoder.encode = None  # from now on nothing may be encoded
    assert score_pairs(score, folder.split("test")) == pytest.approx(expected, abs=1e-6)
    other = BatchEncoder(load(experts_model, device="cpu"))
    score_pairs(scored_by(other, cache=tmp_path), folder.split("test"))
    assert len(list(tmp_path.iterdir())) == 3


def test_standard_scores_of_each_batch_are_not_cached(pairs_folder, tmp_path):
    language_model = make_language_model(tmp_path / "olmoe", "olmoe")
    encoder = BatchEncoder(MoeEmbedder(language_model, parts="rw", standard="batch", device="cpu"))
    table = Pairs.open(pairs_folder).split("test")
    expected = score_pairs(scored_by(encoder), table.slice(0, 8))
    score = scored_by(encoder, cache=tmp_path / "cache")
    score_pairs(score, table)
    assert score_pairs(score, table.slice(0, 8)) == pytest.approx(expected, abs=1e-6)


def test_single_route_serves_every_domain(minilm, tmp_path):
    encoder = BatchEncoder(load(str(make_tiny_encoder(tmp_path / "se", minilm, ("crops",))), device="cpu"))
    assert routes_by_domain(encoder.known_routes, DOMAINS) == {"crops": "crops", "neuro": "crops"}
    # A prompt that is no domain's is no route of one.
    model = encoder.model
    model.prompts, model.default_prompt_name = {"query": "query: "}, None
    model[0].auto_model.config.experts = []
    known = BatchEncoder(model).known_routes
    assert routes_by_domain(known, DOMAINS) == {"crops": None, "neuro": None}
    assert routes_by_domain(known, DOMAINS, {"*": "query"}) == {"crops": "query", "neuro": "query"}
    model.default_prompt_name = "query"  # in front of every text, as `encode` of any library has it
    known = BatchEncoder(model).known_routes
    assert routes_by_domain(known, DOMAINS) == {"crops": "query", "neuro": "query"}
