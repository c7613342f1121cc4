"""Routes learned from label columns: on texts whose labels are in their words, through the public call."""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sentence_transformers import SentenceTransformer

import sentence_experts as se
from sentence_experts.models.files.fingerprint import folder_fingerprint
from sentence_experts.pairs.labels import LabelColumn, read_labels
from sentence_experts.storage import NoSpaceError
from sentence_experts.training import route_candidates
from sentence_experts.training.config import FitConfig
from sentence_experts.training.data import LinkedPairs
from sentence_experts.training.labelled_texts import LabelledTexts
from sentence_experts.training.train_heads import Head, LabelledVectors, train_head
from sentence_experts.training.training_set import number_texts

TOPICS = ("rice", "sleep", "stars", "bridges")
METHODS = ("survey", "model", "trial", "review")


def make_rows(count: int = 240, seed: int = 0) -> list[dict[str, Any]]:
    """Texts of one topic and one method each, at random; sources are groups of two."""
    rng = np.random.default_rng(seed)
    words = [f"word{n}" for n in range(50)]
    rows = []
    for number in range(count):
        topic, method = rng.choice(TOPICS), rng.choice(METHODS)
        filling = " ".join(rng.choice(words, 6))
        rows.append({
            "text": f"{topic} {filling} {method} {number}", "topic": str(topic), "method": str(method),
            "source": f"s{number // 2}",
        })  # fmt: skip
    return rows


@pytest.fixture(scope="module")
def fitted(minilm: str, tmp_path_factory: pytest.TempPathFactory) -> se.FitResult:
    out = tmp_path_factory.mktemp("fit") / "model"
    return se.fit(minilm, make_rows(), by=["topic", "method"], group="source", steps=150, out=out)


@pytest.fixture(scope="module")
def small_fitted(plain_model: Path, tmp_path_factory: pytest.TempPathFactory) -> se.FitResult:
    """For tests of which routes there are, not of how good they are."""
    out = tmp_path_factory.mktemp("fit") / "small"
    return se.fit(plain_model, make_rows(), by=["topic", "method"], group="source", steps=5, out=out)


def test_each_route_learns_its_label(fitted: se.FitResult) -> None:
    frame = fitted.to_pandas().set_index("route")
    assert (frame["ndcg"] > 0.95).all()
    assert frame.loc["method", "gain_low"] > 0.1  # topics come first in the texts: the base knows them
    assert frame["auc"].mean() > 0.8
    assert frame["base_auc"].mean() == pytest.approx(0.5, abs=1e-9)
    assert "nDCG@10" in fitted.summary
    assert sorted(row for rows in fitted.sets.values() for row in rows) == list(range(240))


def test_the_figures_can_be_measured_again_on_the_rows_of_the_test(fitted: se.FitResult) -> None:
    table = make_rows()
    rows = [table[number] for number in fitted.sets["test"]]
    vectors = fitted.model.encode([row["text"] for row in rows], prompt_name="method")
    scores, gains = vectors @ vectors.T, []
    for query, row in enumerate(rows):
        others = [n for n, other in enumerate(rows) if other["source"] != row["source"]]
        alike = [rows[n]["method"] == row["method"] for n in others]
        order = np.argsort(-scores[query, others], kind="stable")[:10]
        discounts = 1 / np.log2(np.arange(2, 12))
        gains.append(discounts[np.array(alike)[order]].sum() / discounts[: sum(alike)].sum())
    assert np.mean(gains) == pytest.approx(fitted.to_pandas().set_index("route").loc["method", "ndcg"], 1e-6)


def test_rows_are_counted_with_those_that_are_left_out(plain_model: Path) -> None:
    table = make_rows(60)
    table.insert(3, {"text": "", "topic": "rice", "method": "trial", "source": "none"})
    result = se.fit(plain_model, table, by=["topic"], steps=2)
    numbers = sorted(row for rows in result.sets.values() for row in rows)
    assert numbers == [number for number in range(61) if number != 3]


def test_the_vectors_of_a_route_are_its_head_on_the_pooled_vector(fitted: se.FitResult) -> None:
    texts = ["rice word1 survey", "sleep word2 model"]
    pooled = fitted.model.without_heads().encode(texts, prompt_name="topic")
    weight, bias = fitted.model.head_routes["topic"]
    mapped = pooled @ weight.T + bias
    expected = mapped / np.linalg.norm(mapped, axis=1, keepdims=True)
    np.testing.assert_allclose(fitted.model.encode(texts, prompt_name="topic"), expected, atol=1e-5)


def test_a_stock_library_opens_it(fitted: se.FitResult) -> None:
    stock = SentenceTransformer(str(fitted.out))
    for route in ("topic", "method"):
        own = fitted.model.encode(["rice trial"], prompt_name=route)
        np.testing.assert_allclose(stock.encode(["rice trial"], prompt_name=route), own, atol=1e-6)


def test_the_same_call_returns_the_finished_model(fitted: se.FitResult, minilm: str) -> None:
    settings: dict[str, Any] = {"by": ["topic", "method"], "group": "source", "steps": 150}
    again = se.fit(minilm, make_rows(), out=fitted.out, **settings)
    assert again.summary == fitted.summary
    assert again.rows() == fitted.rows()
    assert again.sets == fitted.sets
    with pytest.raises(se.UsageError, match="made with another table"):
        se.fit(minilm, make_rows(seed=1), out=fitted.out, **settings)

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    json.loads((Path(str(fitted.out)) / "made_from.json").read_text(), parse_constant=refuse)
    card = (Path(str(fitted.out)) / "README.md").read_text()
    assert "| topic | " in card


def test_a_changed_mesh_file_is_another_one(plain_model: Path, tmp_path: Path) -> None:
    numbers = {"Asthma": "C08.1", "Flu": "C08.2", "Gout": "C05.1", "Acne": "C05.2"}
    rows = [row | {"mesh": list(numbers)[number % 4]} for number, row in enumerate(make_rows(120))]
    settings: dict[str, Any] = {"by": ["mesh:C"], "steps": 2, "mesh_descriptors": tmp_path / "desc.xml"}

    def write() -> None:
        records = "".join(
            f"<DescriptorRecord><DescriptorUI>D{name}</DescriptorUI>"
            f"<DescriptorName><String>{name}</String></DescriptorName><TreeNumberList>"
            f"<TreeNumber>{number}</TreeNumber></TreeNumberList></DescriptorRecord>"
            for name, number in numbers.items()
        )
        (tmp_path / "desc.xml").write_text(f"<DescriptorRecordSet>{records}</DescriptorRecordSet>")

    write()
    first = se.fit(plain_model, rows, out=tmp_path / "model", **settings)
    assert se.fit(plain_model, rows, out=tmp_path / "model", **settings).rows() == first.rows()
    numbers["Flu"] = "C01.2"
    write()
    with pytest.raises(se.UsageError, match="made with other mesh_descriptors"):
        se.fit(plain_model, rows, out=tmp_path / "model", **settings)


def test_headings_count_without_their_stars_and_qualifiers(tmp_path: Path) -> None:
    mesh = ["*Asthma/drug therapy", "Asthma", "Asthma/*genetics", "*Lupus/drug therapy", "Lupus"] * 2
    records = [
        f"PMID- {number}\nTI  - Study {number}\nAB  - Text {number}.\nMH  - {names}\nMH  - Humans\n"
        for number, names in enumerate(mesh, start=1)
    ]
    (tmp_path / "pubmed.nbib").write_text("\n".join(records))
    corpus = se.import_corpus(tmp_path / "pubmed.nbib")
    labels = LabelledTexts.read(corpus, FitConfig(by=["mesh"])).labels["mesh"]
    assert labels.names == ("Asthma", "Humans", "Lupus")


def test_a_fitted_model_takes_more_routes_and_the_others_stay(small_fitted: se.FitResult) -> None:
    texts = ["rice word1 survey", "sleep word2 model"]
    grown = se.fit(small_fitted.model, make_rows(60), by=["kind=topic"], steps=10).model
    assert set(grown.head_routes) == {"topic", "method", "kind"}
    for route in ("topic", "method"):
        own = small_fitted.model.encode(texts, prompt_name=route)
        assert np.array_equal(grown.encode(texts, prompt_name=route), own)


def test_other_routes_and_other_test_texts_leave_stored_vectors_valid(
    small_fitted: se.FitResult, tmp_path: Path
) -> None:
    folder, gaps = Path(str(small_fitted.out)), [row | {"kind": row["topic"]} for row in make_rows(80)]
    se.fit(folder, gaps, by=["kind"], steps=2, out=tmp_path / "more")
    se.add_route(folder, "other", kind="head", out=tmp_path / "other")
    se.drop_route(folder, "method", out=tmp_path / "fewer")
    for name in ("more", "other", "fewer"):
        assert folder_fingerprint(tmp_path / name, "topic") == folder_fingerprint(folder, "topic"), name


@pytest.mark.slow
def test_other_routes_read_as_many_tokens_as_before(
    small_fitted: se.FitResult, plain_model: Path, tmp_path: Path
) -> None:
    length = small_fitted.model.max_seq_length
    with pytest.raises(se.UsageError, match=rf"`max_length`: the model reads {length} tokens, and its other"):
        se.fit(small_fitted.model, make_rows(), by=["third=topic"], steps=2, max_length=length - 1)
    for base in (small_fitted.model, plain_model):
        grown = se.fit(base, make_rows(), by=["third=topic"], steps=2, max_length=10_000).model
        assert grown.max_seq_length == se.load(base, device="cpu").max_seq_length
    for settings in ({"max_length": 10_000}, {"max_length": length}):  # one request
        se.fit(small_fitted.model, make_rows(), out=tmp_path / "out", by=["third=topic"], steps=2, **settings)
    assert f"max_length: {length}" in (tmp_path / "out" / "README.md").read_text()


def test_the_name_of_a_route_that_is_there_is_refused(small_fitted: se.FitResult) -> None:
    with pytest.raises(se.UsageError, match="has a route 'topic' already"):
        se.fit(small_fitted.model, make_rows(), by=["topic"], steps=10)


def test_a_model_of_experts_alone_is_refused(experts_model: Path) -> None:
    with pytest.raises(se.UsageError, match=r"`base`: .* has experts alone"):
        se.fit(experts_model, make_rows(), by=["topic"], steps=10)


def test_a_column_that_is_text_and_label_is_named(
    plain_model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    se.fit(plain_model, make_rows(60), by=["topic"], text=["text", "topic"], steps=2)
    assert "column 'topic' is text and label" in caplog.text


def test_a_route_with_few_pairs_is_refused_and_the_others_go_on(plain_model: Path) -> None:
    rows = make_rows(60)
    for number, row in enumerate(rows):
        row["rare"] = "x" if number in (0, 5) else "y" if number in (1, 7) else None
    result = se.fit(plain_model, rows, by=["topic", "rare"], steps=5)
    assert set(result.model.head_routes) == {"topic"}
    assert "it needs 8" in result.refused["rare"]
    with pytest.raises(se.InputError, match=r"no route can be learned: . pairs of alike texts"):
        se.fit(plain_model, rows, by=["rare"], steps=5)


def test_a_route_that_validation_cannot_judge_is_refused(plain_model: Path) -> None:
    rows = [row | {"site": f"s{number % 10}"} for number, row in enumerate(make_rows(100))]
    with pytest.raises(se.InputError, match="no two validation texts of different groups share a label"):
        se.fit(plain_model, rows, by=["topic"], group="site", steps=5)


def test_a_route_by_which_all_texts_are_alike_is_refused(plain_model: Path) -> None:
    rows = [row | {"kind": "a"} for row in make_rows(60)]
    copies = [row | {"kind": "b"} for row in rows[:20]]
    with pytest.raises(se.InputError, match=r"all \d+ train texts have the label 'a', without 20 near dup"):
        se.fit(plain_model, rows + copies, by=["kind"], steps=5)


def test_groups_that_differ_in_case_or_space_alone_are_one() -> None:
    written = [
        "Ärzteblatt 1",
        "ÄRZTEBLATT 1 ",
        "A\u0308rzteblatt 1",
        " ärzteblatt\u00a01",
        "Ärzte\u200bblatt 1",
        "2",
    ]
    written += ["2.0", "2.5"]
    rows = [
        {"text": f"{'abcdefgh'[n]} study " + "word " * n, "topic": f"topic {n % 2}", "source": source}
        for n, source in enumerate(written)
    ]
    groups = LabelledTexts.read(rows, FitConfig(by=["topic"], group="source")).groups.tolist()
    assert len(set(groups[:5])) == 1
    assert groups[5] == groups[6]
    assert len({groups[0], groups[5], groups[7]}) == 3


def test_numbers_and_lists_are_in_the_text_of_every_kind_of_table(tmp_path: Path) -> None:
    rows = [
        {"title": f"Study of {'abcdefgh'[n]}", "code": n, "words": ["x", f"y{n}"], "topic": n % 2}
        for n in range(8)
    ]
    frame = pd.DataFrame(rows)
    frame.assign(words=frame["words"].map("; ".join)).to_csv(tmp_path / "rows.csv", index=False)
    config = FitConfig(text=["title", "code", "words"], by=["topic"])
    texts = [LabelledTexts.read(table, config).texts for table in (rows, frame, tmp_path / "rows.csv")]
    assert texts[0] == texts[1] == texts[2]
    assert texts[0][3] == "Study of d\n3\nx; y3"


def test_a_rank_of_experts_is_refused() -> None:
    with pytest.raises(se.UsageError, match="`rank` has no effect with `kind=expert`"):
        FitConfig.of(None, by=["topic"], kind="expert", rank=8)


def test_a_column_of_splits_is_named_as_not_read(caplog: pytest.LogCaptureFixture) -> None:
    rows = [row | {"Split": "test"} for row in make_rows(20)]
    LabelledTexts.read(rows, FitConfig(by=["topic"], group="Split"))
    assert "is not read" not in caplog.text
    LabelledTexts.read(rows, FitConfig(by=["topic"]))
    assert "the column Split is not read" in caplog.text


def test_groups_and_near_duplicates_are_in_one_set(minilm: str) -> None:
    rows = make_rows(100)
    copies = [
        {**row, "text": row["text"] + " again", "source": f"copy{n}"} for n, row in enumerate(rows[:20])
    ]
    data = LabelledTexts.read(rows + copies, FitConfig(by=["topic"], group="source"))
    assert data.left_out == {"near duplicates": 20}
    assert not any(text.endswith("again") for text in data.texts)
    of_sets = [set(data.groups[each].tolist()) for each in data.sets.values()]
    assert sum(map(len, of_sets)) == len(set.union(*of_sets)) == 50


@pytest.mark.parametrize("missing", ["", None, "NA"])
def test_a_text_without_a_group_is_one_by_itself(missing: Any) -> None:
    rows = [row | {"source": f"s{n}" if n < 20 else missing} for n, row in enumerate(make_rows(100))]
    groups = LabelledTexts.read(rows, FitConfig(by=["topic"], group="source")).groups
    assert len(set(groups.tolist())) == 100


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"by": []}, se.UsageError, "`by`: name at least one label column"),
        ({"by": ["colour"]}, se.InputError, "no column 'colour'"),
        ({"by": ["topic"], "text": ["abstract"]}, se.InputError, "`text`: no column 'abstract'"),
        ({"by": ["topic"], "group": "author"}, se.InputError, "`group`: no column 'author'"),
        ({"by": ["topic"], "group": "lists"}, se.UsageError, "`group`: column 'lists': a text is expected"),
        ({"by": ["topic", "topic"]}, se.UsageError, "two routes are named 'topic'"),
    ],
)
def test_wrong_columns_are_named_before_the_model_is_loaded(
    settings: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        se.fit("no-such-model", [row | {"lists": ["a", "b"]} for row in make_rows(10)], **settings)


def test_training_that_does_not_help_is_left_out() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(200, 16)).astype(np.float32)
    labels = read_labels([str(rng.integers(5)) for _ in range(200)], LabelColumn("a", None, "a"))
    halves = [np.arange(0, 100), np.arange(100, 200)]
    first, second = (LabelledVectors(vectors[rows], labels.rows(rows), rows) for rows in halves)
    head = train_head(first, second, steps=50)
    start = Head(np.eye(16, dtype=np.float32), -first.vectors.mean(axis=0))
    assert second.ndcg(head) >= second.ndcg(start)
    if head.steps == 0:
        assert np.array_equal(head.weight, np.eye(16))
    nothing = LabelledVectors(vectors[:0], labels.rows(halves[0][:0]), halves[0][:0])
    low = train_head(first, nothing, steps=20, rank=2)
    assert low.steps == 20
    assert np.linalg.matrix_rank(low.weight - np.eye(16), tol=1e-4) <= 2


@pytest.mark.realdata
@pytest.mark.slow
def test_debian_packages(real_data: Path, minilm: str, tmp_path: Path) -> None:
    """Human labels of four facets, whose tags stand in one column."""
    from sentence_experts.tables import read_rows

    facets = ["use", "works-with", "implemented-in", "uitoolkit"]
    rows = [
        row
        for row in read_rows(real_data / "facets" / "debian_packages_tagged.jsonl.xz")
        if len({tag.split("::")[0] for tag in row["tags"]} & set(facets)) >= 2
        and "role::program" in row["tags"]
    ]
    result = se.fit(minilm, rows, text=["description"], by=facets, group="source", max_length=64)
    frame = result.to_pandas()
    assert frame["auc"].mean() >= 0.63
    assert (frame["ndcg"] - frame["base_ndcg"]).mean() >= 0.05


def test_experts_are_trained_on_pairs_that_share_a_label(plain_model: Path) -> None:
    """A few steps: the pairs and the choice are tested, not the gain."""
    base = se.load(plain_model)
    longest = base.max_seq_length
    result = se.fit(base, make_rows(120), by=["topic", "method"], kind="expert", steps=2, max_length=12)
    assert (result.model.max_seq_length, base.max_seq_length) == (12, longest)
    assert set(result.model.experts) >= {"topic", "method"}
    assert [each["kind"] for each in result.tried] == ["expert"]
    assert len(result.gains) == 2


def label_pairs_of(rows: list[dict[str, Any]], steps: int, group: str | None) -> tuple[Any, LinkedPairs]:
    config = FitConfig(by=["topic", "method"], steps=steps, group=group)
    data = LabelledTexts.read(rows, config)
    return data, route_candidates.label_pairs(data, ["topic", "method"], config)


def test_pairs_of_labels_are_alike() -> None:
    topics = {row["text"]: row["topic"] for row in make_rows()}
    pairs = label_pairs_of(make_rows(), 10, None)[1].pairs
    for split in ("train", "validation"):
        rows = pairs.split(split).to_pylist()
        assert {row["domain"] for row in rows} == {"topic", "method"}
        for row in rows:
            if row["domain"] == "topic":
                alike = topics[row["anchor"]] == topics[row["positive"]]
                assert alike == (row["label"] == 1)


def test_validation_texts_may_all_be_alike_or_unlike() -> None:
    data, _ = label_pairs_of(make_rows(), 10, None)
    labels = data.labels["topic"]
    numbers = labels.matrix.indices
    rows = data.sets["validation"]
    for chosen in (rows[numbers[rows] == numbers[rows[0]]], rows[:1]):
        part = replace(data, sets={**data.sets, "validation": chosen})
        config = FitConfig(by=["topic"], steps=10)
        found = route_candidates.label_pairs(part, ["topic"], config).pairs.split("validation")
        assert set(found["label"].to_pylist()) <= {1}


def test_texts_of_one_label_or_group_are_no_negatives_of_each_other() -> None:
    data, objective = label_pairs_of(make_rows(), 10, "source")
    table, numbers, known = number_texts([(objective, objective.routes)])
    places = {text: row for row, text in enumerate(data.texts)}
    masked = known(torch.from_numpy(numbers[:, :1]), torch.from_numpy(numbers[:, 1]))
    first, second = ([places[text] for text in table[side].to_pylist()] for side in ("anchor", "positive"))
    same_group = data.groups[first][:, None] == data.groups[second]
    routes = table["route"].to_numpy()
    expected = same_group.copy()
    for route, labels in data.labels.items():
        own = np.ix_(routes == route, routes == route)
        expected[own] |= labels.sharing(np.array(first), np.array(second))[own]
    assert np.array_equal(masked.numpy(), expected)
    assert (same_group & ~np.eye(len(table), dtype=bool)).any()


def test_known_links_of_many_texts_take_memory_for_each_text_alone() -> None:
    objective = label_pairs_of(make_rows(1000), 300, None)[1]
    known = number_texts([(objective, objective.routes)])[2]
    assert known.keys.numel() == 0
    assert known.labels.shape == (known.count, 2)  # a label and a group each


def test_labels_of_a_corpus_ignore_case() -> None:
    rows = [
        {
            "id": n,
            "title": f"{row['text']}",
            "abstract": "",
            "keywords": row["topic"].title() if n % 2 else row["topic"],
        }
        for n, row in enumerate(make_rows())
    ]
    for table, count in ((se.import_corpus(papers=rows), 4), (rows, 8)):
        data = LabelledTexts.read(table, FitConfig(by=["keywords"]))
        assert len(data.labels["keywords"].names) == count


def test_auto_ends_with_a_verdict(plain_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route_candidates, "KINDS", ("head", "expert"))
    result = se.fit(plain_model, make_rows(120), by=["topic", "method"], kind="auto", steps=2)
    assert [each["kind"] for each in result.tried] == ["head", "expert"]
    weights = dict(se.load(plain_model).named_parameters())
    mlp = [
        each.numel() for name, each in weights.items() if re.search(r"(intermediate|\d\.output)\.dense", name)
    ]
    [token] = {each.shape[1] for name, each in weights.items() if "word_embeddings" in name}
    assert result.tried[1]["bytes_per_route"] == 4 * (sum(mlp) + token)
    kept = "heads" if "experts are not better than heads" in result.verdict else "experts"
    seen = "with up to 16 training pairs per route and rate against 128"
    assert result.verdict.endswith(f", {seen}; {kept} are kept")
    assert [row[2] for row in result.tried_rows()] == ["128", "16"]
    assert bool(result.model.head_routes) == (kept == "heads")


def test_few_texts_are_for_heads(plain_model: Path) -> None:
    rows = make_rows(40)
    with pytest.raises(se.InputError, match=r"'topic' has 2[0-9] training texts .* need 32"):
        se.fit(plain_model, rows, by=["topic"], kind="adapter", steps=2)
    result = se.fit(plain_model, rows, by=["topic"], kind="auto", steps=2)
    assert result.verdict.endswith("need 32, for batches of 16 pairs; heads are kept")


def test_a_rank_over_the_width_is_any_rank(plain_model: Path) -> None:
    found = [se.fit(plain_model, make_rows(120), by=["topic"], steps=2, rank=rank) for rank in (None, 999)]
    first, second = (own.tried[0]["bytes_per_route"] for own in found)
    assert first == second


def interrupt_second_training(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Interrupt the second run of a fit; return the list that each run is added to."""
    from sentence_experts.training import run

    train_one, trained = run._train, list[Any]()

    def interrupted(*given: Any) -> None:
        trained.append(given)
        if len(trained) == 2:
            raise KeyboardInterrupt
        train_one(*given)

    monkeypatch.setattr(run, "_train", interrupted)
    return trained


@pytest.mark.slow
def test_an_interrupted_fit_continues_with_its_runs(
    plain_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"by": ["topic", "method"], "kind": "adapter", "steps": 2}
    rows = make_rows(120)
    whole = se.fit(plain_model, rows, out=tmp_path / "whole", **options)
    trained = interrupt_second_training(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        se.fit(plain_model, rows, out=tmp_path / "out", **options)
    result = se.fit(plain_model, rows, out=tmp_path / "out", **options)
    assert len(trained) == 3, "the first of two learning rates is not trained again"
    weights = result.model.state_dict()
    assert all(torch.equal(weight, weights[name]) for name, weight in whole.model.state_dict().items())
    assert {each.name for each in tmp_path.iterdir() if each.is_dir()} == {"whole", "out"}


@pytest.mark.slow
def test_another_fit_removes_what_an_interrupted_one_left(
    plain_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"by": ["topic", "method"], "kind": "adapter", "steps": 4}
    rows = make_rows(120)
    interrupt_second_training(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        se.fit(plain_model, rows, out=tmp_path / "other", **options)
    se.fit(plain_model, rows, out=tmp_path / "other", **options | {"steps": 2})
    assert {each.name for each in tmp_path.iterdir() if each.is_dir()} == {"other"}


def test_a_full_disk_within_a_training_is_told_as_that(
    plain_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(*given: Any, out: Path, **settings: Any) -> None:
        out.mkdir(parents=True)
        raise NoSpaceError("no space left: make room")

    monkeypatch.setattr(route_candidates, "train", fill)
    with pytest.raises(NoSpaceError, match=r"^no space left: make room$"):
        se.fit(plain_model, make_rows(120), out=tmp_path / "out", by=["topic"], kind="adapter", steps=2)


def test_an_interrupted_fit_continues_with_its_vectors(
    plain_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sentence_experts.encoding.encoder import BatchEncoder

    options: dict[str, Any] = {"by": ["topic", "method"], "steps": 5}
    whole = se.fit(plain_model, make_rows(), out=tmp_path / "whole", **options)
    with monkeypatch.context() as patched:
        patched.setattr(route_candidates, "train_head", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            se.fit(plain_model, make_rows(), out=tmp_path / "model", **options)
    monkeypatch.setattr(BatchEncoder, "encode", lambda *given, **named: pytest.fail("encoded again"))
    again = se.fit(plain_model, make_rows(), out=tmp_path / "model", **options)
    assert again.rows() == whole.rows()
    assert {file.name for file in tmp_path.iterdir()} == {"whole", "model"}


def _interrupt(*given: Any) -> None:
    raise KeyboardInterrupt


def test_a_table_with_a_row_per_label_is_told(caplog: pytest.LogCaptureFixture) -> None:
    rows = [
        {"text": f"text {n} of {n * n + 7} words", "topic": topic} for n in range(40) for topic in ("a", "b")
    ]
    LabelledTexts.read(rows, FitConfig(text=["text"], by=["topic"]))
    assert "40 of 80 texts are near duplicates of others, and left out, even if their labels" in caplog.text
    caplog.clear()
    LabelledTexts.read(rows[::4] + rows[3::4], FitConfig(text=["text"], by=["topic"]))
    assert not caplog.records


def test_rows_that_cannot_be_read_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [*make_rows(40), {"text": "\ud800", "topic": "a"}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    LabelledTexts.read(tmp_path / "a.jsonl", FitConfig(by=["topic"]))
    assert "a.jsonl: rows left out (1), the first: row 41: " in caplog.text


@pytest.mark.parametrize("dtype", [pytest.param("float16", marks=pytest.mark.slow), "bfloat16"])
def test_coarse_weights_are_trained_as_float32(plain_model: Path, dtype: Any) -> None:
    half = se.load(plain_model, dtype=dtype)
    fitted = se.fit(half, make_rows(), by=["topic"], kind="adapter", steps=2)
    assert fitted.model.dtype == torch.float32
    assert half.dtype == getattr(torch, dtype)


def test_heads_are_learned_on_whole_vectors(plain_model: Path) -> None:
    model = se.load(plain_model)
    model.truncate_dim = model.get_embedding_dimension()
    se.fit(model, make_rows(), by=["topic"], steps=2)
    model.truncate_dim = 16
    with pytest.raises(se.UsageError, match="`base`: its vectors are cut to 16 numbers"):
        se.fit(model, make_rows(), by=["topic"])


def test_na_is_no_text() -> None:
    rows = make_rows()
    written = [row | {"more": "NA"} for row in rows] + [rows[0] | {"text": "NA", "more": "null"}]
    read = LabelledTexts.read(written, FitConfig(text=["text", "more"], by=["topic"]))
    assert read.texts == LabelledTexts.read(rows, FitConfig(text=["text"], by=["topic"])).texts
    assert read.left_out["without a text"] == 1


def test_labels_of_a_single_text_are_told(caplog: pytest.LogCaptureFixture) -> None:
    rows = make_rows(100)
    LabelledTexts.read(
        [*rows[:-33], *(row | {"topic": row["text"]} for row in rows[-33:])], FitConfig(by=["topic"])
    )
    assert not caplog.records
    LabelledTexts.read(
        [*rows[:-34], *(row | {"topic": row["text"]} for row in rows[-34:])], FitConfig(by=["topic"])
    )
    assert "route 'topic': 34 of 100 texts with a label share it with no other text" in caplog.text


def test_a_group_that_is_mostly_empty_is_told(caplog: pytest.LogCaptureFixture) -> None:
    rows = [row | {"source": None if n < 60 else "one"} for n, row in enumerate(make_rows(100))]
    LabelledTexts.read(rows, FitConfig(by=["topic"], group="source"))
    assert "`group`: column 'source' is empty in 60 of 100 rows" in caplog.text


def test_mesh_descriptors_without_a_branch_are_refused(tmp_path: Path) -> None:
    with pytest.raises(se.UsageError, match="`mesh_descriptors`: no branch is named"):
        LabelledTexts.read(make_rows(20), FitConfig(by=["topic"], mesh_descriptors=tmp_path / "desc.xml"))


def test_texts_longer_than_training_reads_are_told(
    plain_model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data, base = LabelledTexts.read(make_rows(20), FitConfig(by=["topic"])), se.load(plain_model)
    for kind, times in (("head", 0), ("adapter", 1)):
        config = FitConfig(by=["topic"], kind=kind, steps=1, max_length=65)
        with contextlib.suppress(se.InputError):  # few texts
            route_candidates.choose_kind(base, data, ["topic"], config)
        assert caplog.text.count("are trained on the first 64 tokens") == times
