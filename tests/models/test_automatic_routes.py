"""Automatic routes: chosen text by text, with a probability, and what happens when it is low."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

import sentence_experts
from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.errors import InputError, RouteError, UsageError
from sentence_experts.models.automatic import AutoRoutedEncoder, fit_auto_routes
from sentence_experts.models.dense import average_experts
from sentence_experts.models.encoder import ExpertEncoder
from sentence_experts.models.files.saving import save
from sentence_experts.models.loading import load
from sentence_experts.models.routes.known_routes import AUTO_FOLDER
from sentence_experts.models.routes.route_classifier import (
    RouteClassifier,
    fit_classifier,
    has_auto_route,
)
from sentence_experts.models.surgery.add_drop_routes import add_route
from sentence_experts.storage import RECORD

LUNGS, HEART, SKIN = "lungs air flow pulmonary", "heart blood vessels pumps", "skin light slowly grows"
WORDS = {"copd": LUNGS, "cvd": HEART, "skin cancer": SKIN}
# Of the three kinds, as the texts that are learned from: what vectors random weights give other texts, and so
# their routes, differs with the vocabulary. The last is of two kinds.
CLEAR = ["air flow air", "blood vessels blood", "skin light skin"]
EXPECTED = ["copd", "cvd", "skin cancer"]
TORN = "lungs heart"


ONE_FAMILY = pytest.mark.parametrize("family", ["bert"])


def labelled(words: dict[str, str]) -> tuple[list[str], list[str]]:
    texts, routes = [], []
    for name, some in words.items():
        for first in some.split():
            for second in some.split():
                texts.append(f"{first} {second} {first}")
                routes.append(name)
    return texts, routes


@pytest.fixture
def routed(mixed: ExpertEncoder) -> AutoRoutedEncoder:
    return fit_auto_routes(mixed, *labelled(WORDS))


def with_confidence(
    model: AutoRoutedEncoder, confidence: float, fallback: str = "average"
) -> AutoRoutedEncoder:
    classifier = replace(model.classifier, confidence=confidence, fallback=fallback)
    return AutoRoutedEncoder(model.without_auto_routes(), classifier)


def test_each_text_takes_its_own_route(routed: AutoRoutedEncoder) -> None:
    names, probabilities = routed.choose_route(CLEAR)
    assert names == EXPECTED
    assert probabilities.shape == (3, 3)
    assert np.allclose(probabilities.sum(axis=1), 1)
    routed = with_confidence(routed, 0)
    vectors = routed.encode(CLEAR, prompt_name="auto")
    expected = np.stack(
        [routed.encode(text, prompt_name=name) for text, name in zip(CLEAR, EXPECTED, strict=True)]
    )
    assert np.abs(vectors - expected).max() <= 1e-6
    assert np.abs(routed.encode(CLEAR[1], prompt_name="auto") - expected[1]).max() <= 1e-6
    assert np.abs(routed.encode(CLEAR, "auto") - expected).max() <= 1e-6


def test_a_vector_does_not_depend_on_its_batch(routed: AutoRoutedEncoder, texts: list[str]) -> None:
    everything = [*texts, *CLEAR, TORN]
    together = routed.encode(everything, prompt_name="auto", batch_size=3)
    alone = np.stack([routed.encode([text], prompt_name="auto")[0] for text in everything])
    assert np.abs(together - alone).max() <= 1e-6


@ONE_FAMILY
def test_unsure_texts_get_the_average(routed: AutoRoutedEncoder, capsys: pytest.CaptureFixture[str]) -> None:
    texts = [*CLEAR, TORN]
    names, probabilities = routed.choose_route(texts)
    highest = probabilities.max(axis=1)
    last, *others = np.argsort(highest)
    routed = with_confidence(routed, (highest[last] + highest[others[0]]) / 2)
    capsys.readouterr()
    vectors = routed.encode(texts, prompt_name="auto")
    assert "1 of 4 texts: no route reached the confidence" in capsys.readouterr().err
    assert np.abs(vectors[last] - average_experts(routed).encode(texts[last])).max() <= 1e-6
    for row in others:
        expected = routed.encode(texts[row], prompt_name=names[row])
        assert np.abs(vectors[row] - expected).max() <= 1e-6
    routed = with_confidence(routed, 0)
    routed.encode(texts, prompt_name="auto")
    assert "no route" not in capsys.readouterr().err


@ONE_FAMILY
def test_unsure_texts_as_an_error(routed: AutoRoutedEncoder) -> None:
    routed = with_confidence(routed, 1.0, "error")
    with pytest.raises(RouteError, match=r"the text 'lungs heart': .*confidence of 1: .*(copd|cvd) 0\.\d\d"):
        routed.encode([TORN], prompt_name="auto")
    routed = with_confidence(routed, 0.0, "error")
    assert routed.encode([TORN], prompt_name="auto").shape == (1, 32)


@ONE_FAMILY
def test_saved_and_loaded(routed: AutoRoutedEncoder, tmp_path: Path) -> None:
    save(routed, tmp_path / "model")
    files = {file.suffix for file in (tmp_path / "model" / AUTO_FOLDER).iterdir()}
    assert files == {".json", ".safetensors"}
    again = sentence_experts.load(tmp_path / "model", device="cpu")
    expected = routed.encode(CLEAR, prompt_name="auto")
    assert np.abs(again.encode(CLEAR, prompt_name="auto") - expected).max() <= 1e-6
    assert np.array_equal(again.classifier.weights, routed.classifier.weights)
    assert again.choose_route(CLEAR)[0] == EXPECTED
    save(again, tmp_path / "copy")
    assert has_auto_route(tmp_path / "copy")
    stock = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    expected = again.encode(CLEAR, prompt_name="cvd")
    assert np.array_equal(stock.encode(CLEAR, prompt_name="cvd"), expected)


@ONE_FAMILY
def test_no_automatic_routes(mixed: ExpertEncoder, tmp_path: Path) -> None:
    with pytest.raises(RouteError, match=r"named 'auto' .*auto_route.*known routes are copd"):
        mixed.encode(["heart"], prompt_name="auto")
    save(mixed, tmp_path / "model")
    with pytest.raises(RouteError, match="no route 'auto'"):
        BatchEncoder(load(tmp_path / "model", device="cpu")).chosen_route("auto")


def test_two_routes_and_instructions(
    bases: dict[str, SentenceTransformer], scatter: Callable[..., ExpertEncoder]
) -> None:
    encoder = scatter(sentence_experts.extend(bases["bert"], ["lungs", "heart"], route="prefix"))
    encoder = fit_auto_routes(encoder, *labelled({"lungs": LUNGS, "heart": HEART}), confidence=0)
    names, probabilities = encoder.choose_route(CLEAR[:2])
    assert names == ["lungs", "heart"]
    assert np.allclose(probabilities.sum(axis=1), 1)
    vectors = encoder.encode(CLEAR[:2], prompt_name="auto")
    assert np.abs(vectors[1] - encoder.encode(CLEAR[1], prompt_name="heart")).max() <= 1e-6


def test_the_probabilities_are_scikit_learns() -> None:
    from sklearn.linear_model import LogisticRegression

    generator = np.random.default_rng(0)
    for routes in (["a", "b"], ["a", "b", "c"]):
        labels = [routes[number % len(routes)] for number in range(60)]
        vectors = generator.normal(size=(60, 5)) + 3 * np.eye(5)[[routes.index(label) for label in labels]]
        unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        around = unit - unit.mean(axis=0)
        scaled = around / np.sqrt((around**2).sum(axis=1).mean())
        classifier = fit_classifier(vectors, labels)
        expected = LogisticRegression(max_iter=1000).fit(scaled, labels).predict_proba(scaled)
        assert np.abs(classifier.probabilities(vectors) - expected).max() <= 1e-9
        assert classifier.trained_on == {name: 60 // len(routes) for name in routes}


@ONE_FAMILY
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"copd": LUNGS, "cvd": HEART}, "no text of route 'skin cancer'"),
        ({**WORDS, "crops": "rice"}, "'crops', which is not a route"),
    ],
)
def test_wrong_training(mixed: ExpertEncoder, words: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        fit_auto_routes(mixed, *labelled(words))


@ONE_FAMILY
def test_a_broken_file(routed: AutoRoutedEncoder, tmp_path: Path) -> None:
    save(routed, tmp_path / "model")
    (tmp_path / "model" / AUTO_FOLDER / "auto_route.safetensors").write_bytes(b"torn")
    with pytest.raises(InputError, match=r"auto_route\.safetensors has changed since it was written"):
        sentence_experts.load(tmp_path / "model")


@ONE_FAMILY
def test_with_a_prompt_or_experts(routed: AutoRoutedEncoder) -> None:
    for options in ({"expert_ids": 0}, {"prompt": "x"}):
        with pytest.raises(UsageError, match="cannot be combined"):
            routed.encode(["heart"], prompt_name="auto", **options)


@ONE_FAMILY
def test_on_all_cores_and_in_other_processes(routed: AutoRoutedEncoder) -> None:
    expected = routed.encode([*CLEAR, TORN], prompt_name="auto")
    assert np.abs(BatchEncoder(routed).encode([*CLEAR, TORN], "auto") - expected).max() <= 1e-6
    assert np.abs(BatchEncoder(routed, 2).encode([*CLEAR, TORN], "auto") - expected).max() <= 1e-6
    copied = pickle.loads(pickle.dumps(routed))
    assert np.array_equal(copied.encode([*CLEAR, TORN], prompt_name="auto"), expected)
    assert BatchEncoder(routed).fingerprint == BatchEncoder(copied).fingerprint
    other = with_confidence(routed, 0.123)
    assert BatchEncoder(routed).fingerprint != BatchEncoder(other).fingerprint


@ONE_FAMILY
def test_the_model_inside_stays_as_it_was(routed: AutoRoutedEncoder, tmp_path: Path) -> None:
    inside = routed.without_auto_routes()
    assert type(inside) is ExpertEncoder
    assert "auto" not in inside.prompts
    save(inside, tmp_path / "model")
    assert not has_auto_route(tmp_path / "model")
    grown = add_route(routed, "kidney")
    assert "auto" not in grown.prompts


@ONE_FAMILY
@pytest.mark.parametrize(("routes", "width"), [(("copd", "other"), None), (("copd", "cvd"), 5)])
def test_automatic_routes_of_another_model(
    routed: AutoRoutedEncoder, tmp_path: Path, routes: tuple[str, ...], width: int | None
) -> None:
    save(routed, tmp_path / "model")
    dimensions = width or routed.get_embedding_dimension()
    RouteClassifier(routes, np.zeros((2, dimensions)), np.zeros(2)).write(tmp_path / "model" / AUTO_FOLDER)
    (tmp_path / "model" / RECORD).unlink(missing_ok=True)
    with pytest.raises(InputError, match=r"automatic routes of another model: .*`auto_route`"):
        sentence_experts.load(tmp_path / "model")
