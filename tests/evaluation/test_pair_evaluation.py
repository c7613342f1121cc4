from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sentence_transformers import SentenceTransformer

from sentence_experts.errors import InputError, UsageError
from sentence_experts.evaluation.evaluate import evaluate
from sentence_experts.evaluation.metrics import pair_metrics
from sentence_experts.evaluation.pair_evaluation import evaluate_scorers, measure
from sentence_experts.evaluation.results import PAIR_WEIGHTED_MEAN, POOLED, score_column, view_of_domain
from sentence_experts.evaluation.scorers import (
    Scorer,
    check_table,
    cosine_by_text,
    score_pairs,
    tfidf_scorer,
)
from sentence_experts.models.pooling import pooling_of
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.report.write import report_of


def given(anchors, positives, domain):
    """The similarity that is written in the texts: "0.3|..."."""
    return np.array([float(text.split("|")[0]) for text in anchors])


GIVEN = {"given": [Scorer("given", given)]}


def table_of(rows: list[tuple[float, int, str]]) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "anchor": f"{score}|a",
                "positive": "b",
                "label": label,
                "domain": domain,
                "count": label,
                "anchor_id": f"a{number}",
                "positive_id": f"b{number}",
            }
            for number, (score, label, domain) in enumerate(rows)
        ]
    )


def test_where_no_pair_is_unlinked_thresholds_begin_at_a_half():
    rows = [(0.2, 1, "d"), (0.6, 1, "d"), (0.9, 1, "d"), (0.4, 1, "d")]
    found = evaluate_scorers(GIVEN, table_of(rows), bootstrap=0)
    assert found.settings["threshold_min"] == 0.5
    assert found.models[0].views[POOLED].metrics["f1_max"] == pytest.approx(2 / 3)
    unlinked = evaluate_scorers(GIVEN, table_of([*rows, (0.1, 0, "d")]), bootstrap=0)
    assert unlinked.settings["threshold_min"] is None
    assert unlinked.models[0].views[POOLED].metrics["f1_max"] == 1


def test_the_lowest_threshold_is_that_of_each_domain():
    linked = [(0.2, 1, "linked"), (0.6, 1, "linked"), (0.9, 1, "linked"), (0.4, 1, "linked")]
    mixed = [(0.4, 1, "mixed"), (0.3, 0, "mixed")] * 10
    found = evaluate_scorers(GIVEN, table_of([*linked, *mixed]), bootstrap=50).models[0]
    alone = evaluate_scorers(GIVEN, table_of(linked), bootstrap=50).models[0]
    assert found.domains["linked"] == alone.domains["linked"]
    assert found.domains["linked"].metrics["f1_max"] == pytest.approx(2 / 3)
    assert found.domains["linked"].intervals["f1_max"].low < 2 / 3
    assert found.domains["mixed"].metrics["threshold"] == 0.4


def test_intervals_allow_for_pairs_that_an_article_links():
    generator = np.random.default_rng(0)
    labels = np.arange(80) % 2
    values = np.repeat(generator.normal(size=10), 8) * labels + labels + generator.normal(size=80)
    table = table_of([(value, int(label), "d") for value, label in zip(values, labels, strict=True)])
    articles = [[f"article {row // 8}"] if label else [] for row, label in enumerate(labels)]
    known = table.append_column("linked_by", pa.array(articles, pa.list_(pa.string())))
    with pytest.raises(UsageError, match="`cluster=article`: these pairs do not keep the articles"):
        evaluate_scorers(GIVEN, table, cluster="article")
    by_paper, by_article = (
        evaluate_scorers(GIVEN, known, bootstrap=20, cluster=cluster) for cluster in ("paper", "article")
    )
    ends = [found.models[0].pooled.intervals["roc_auc"] for found in (by_paper, by_article)]
    assert ends[0] != ends[1]
    plain = evaluate_scorers(GIVEN, table, bootstrap=20)
    assert plain.models == by_paper.models
    assert by_article.settings["cluster"] == "article"


# "low" is separated at 0.2, "high" at 0.8; no one threshold serves both.
TWO_SCALES = [
    *[(0.3, 1, "low")] * 3,
    *[(0.1, 0, "low")] * 3,
    *[(0.9, 1, "high")] * 1,
    *[(0.7, 0, "high")] * 1,
]


def test_pooled_has_one_threshold_and_the_mean_one_per_domain():
    table = table_of(TWO_SCALES)
    measured = measure(table, score_pairs(given, table), replicates=0)
    pooled, mean = measured.figures[POOLED], measured.figures[PAIR_WEIGHTED_MEAN]
    domains = measured.by_domain()
    assert domains["low"].metrics["f1_max"] == domains["high"].metrics["f1_max"] == 1.0
    assert mean.metrics["f1_max"] == 1.0
    assert mean.metrics["threshold"] == pytest.approx((6 * 0.3 + 2 * 0.9) / 8)
    assert pooled.metrics["f1_max"] == pytest.approx(2 * 4 / (2 * 4 + 1))
    assert (pooled.pairs, pooled.positives, mean.pairs) == (8, 4, 8)
    assert (
        pooled.metrics.items()
        >= pair_metrics([score for score, _, _ in TWO_SCALES], [label for _, label, _ in TWO_SCALES]).items()
    )


def test_order_of_pairs_changes_nothing(pairs_folder):
    table = Pairs.open(pairs_folder).split("test")
    shuffled = table.take(pa.array(np.random.default_rng(0).permutation(table.num_rows)))
    found = [
        evaluate_scorers({"TF-IDF": [tfidf_scorer({})]}, rows, bootstrap=20).to_json()
        for rows in (table, shuffled)
    ]
    assert json.dumps(found[0]) == json.dumps(found[1])


def test_each_text_is_encoded_once_and_the_cosine_is_symmetric():
    seen = []

    def encode(texts):
        seen.extend(texts)
        return np.array([[len(text), text.count("x")] for text in texts], dtype=np.float32)

    there = cosine_by_text(["ax", "bbb", "ax"], ["bbb", "cxc", "ax"], encode)
    assert sorted(seen) == ["ax", "bbb", "cxc"]
    assert there[2] == pytest.approx(1.0)
    assert np.array_equal(there[:2], cosine_by_text(["bbb", "cxc"], ["ax", "bbb"], encode))


def test_bad_tables_and_labels_are_refused():
    table = table_of(TWO_SCALES)
    with pytest.raises(InputError, match="no column 'domain'"):
        check_table(table.drop_columns(["domain"]))
    with pytest.raises(InputError, match="no pairs"):
        check_table(table.slice(0, 0))
    with pytest.raises(InputError, match="labels must be 0 or 1"):
        check_table(table_of([(0.1, 2, "d")]))
    empty = table.set_column(0, "anchor", pa.array([None, *["0.1|"] * 7]))
    with pytest.raises(InputError, match="row 0 has no anchor"):
        check_table(empty)
    with pytest.raises(InputError, match="score nan"):
        evaluate_scorers(GIVEN, table_of([(float("nan"), 1, "d"), (0.1, 0, "d")]))


def shifted(label: str, noise: float, seed: int = 0) -> Scorer:
    """The given scores with separate noise, on another scale."""
    generator = np.random.default_rng(seed)
    score = lambda *pairs: 5 * (given(*pairs) + noise * generator.normal(size=len(pairs[0]))) - 3  # noqa: E731
    return Scorer(label, score)


def separated(pairs: int = 300, gap: float = 0.5) -> pa.Table:
    generator = np.random.default_rng(0)
    return table_of([(gap * label + 0.2 * generator.normal(), label, "d") for label in [0, 1] * (pairs // 2)])


def test_difference_of_a_better_model_is_positive_and_of_equal_models_zero():
    scorers = [*GIVEN["given"], shifted("same", 0.0), shifted("noisy", 1.0)]
    found = evaluate_scorers({each.label: [each] for each in scorers}, separated(), bootstrap=200)
    gaps = {(gap.first, gap.second, gap.group, gap.metric): gap for gap in found.differences}
    assert len(gaps) == 3 * 3 * 2  # pairs of models, views, metrics
    above = gaps["given", "noisy", POOLED, "f1_max"]
    figures = [found.models[place].pooled.metrics["f1_max"] for place in (0, 2)]
    assert above.value == figures[0] - figures[1]
    assert 0 < above.interval.low < above.value < above.interval.high
    itself = gaps["given", "same", view_of_domain("d"), "roc_auc"]
    assert (itself.value, itself.interval.low, itself.interval.high) == (0, 0, 0)
    assert above.p_holm < 0.01
    assert itself.p_holm == 1.0


def test_runs_of_one_model_are_measured_as_their_mean():
    runs = [shifted(f"m #{seed}", 0.3, seed) for seed in (1, 2, 3)]
    models = {"m": runs, **GIVEN}
    found = evaluate_scorers(models, separated(), bootstrap=100, baseline=["given"])
    model, fixed = found.models
    assert (model.label, model.seeds, model.trained) == ("m", 3, True)
    assert (fixed.seeds, fixed.trained, fixed.runs) == (1, False, ())
    values = [run.pooled.metrics["f1_max"] for run in model.runs]
    assert model.pooled.metrics["f1_max"] == pytest.approx(np.mean(values))
    assert model.pooled.spread["f1_max"] == pytest.approx(np.std(values, ddof=1))
    assert found.scores.column_names[-4:] == [
        f"cosine of {name}" for name in ("m #1", "m #2", "m #3", "given")
    ]
    assert {(gap.first, gap.second) for gap in found.differences} == {("m", "given")}


def test_the_table_that_is_printed_hides_nothing():
    domains = ("cardiovascular disease", "neuroscience", "crops", "immunology")
    generator = np.random.default_rng(0)
    rows = [(0.5 * label + generator.normal(), label, name) for name in domains for label in [0, 1] * 20]
    scorers = {"experts": [Scorer("experts", given)], "TF-IDF": [shifted("TF-IDF", 1.0)]}
    found = evaluate_scorers(scorers, table_of(rows), bootstrap=10)
    frame = found.to_pandas()
    with pd.option_context("display.max_columns", 0, "display.width", 80):  # as pandas prints at a terminal
        printed = str(frame)
        assert "..." in str(found.to_pandas(all_columns=True))
    assert "..." not in printed
    assert len(printed.splitlines()) == 1 + 2 * 6
    assert frame["domain"].tolist() == 2 * ["(pooled)", "(mean)", *sorted(domains)]
    gap = next(each for each in found.differences if each.group == POOLED and each.metric == "roc_auc")
    second = frame[frame["model"] == "TF-IDF"].iloc[0]
    gains = [second[name] for name in ("gain", "low", "high")]
    assert gains == pytest.approx([-gap.value, -gap.interval.high, -gap.interval.low], abs=6e-4)
    assert second["roc_auc"] - frame["roc_auc"][0] == pytest.approx(second["gain"], abs=2e-3)
    assert frame["gain"][:6].isna().all()
    alone = evaluate_scorers(GIVEN, table_of(rows), bootstrap=10).to_pandas()
    assert list(alone.columns) == ["model", "domain", "f1_max", "roc_auc", "low", "high"]
    assert (alone["low"].iloc[2:] < alone["roc_auc"].iloc[2:]).all()


def test_settings_leave_a_loaded_model_as_it_was(pairs_folder, plain_model):
    loaded = SentenceTransformer(str(plain_model), device="cpu")
    before = (pooling_of(loaded), loaded.max_seq_length, loaded.encode(["a long text about rice"]))
    pooling = {"mean": "mean", "cls": "cls", "mean folder": "mean", "cls folder": "cls"}
    models = {"mean": loaded, "cls": loaded, "mean folder": plain_model, "cls folder": plain_model}
    found = evaluate(models, pairs_folder, bootstrap=0, pooling=pooling, max_length=8)
    assert (pooling_of(loaded), loaded.max_seq_length) == before[:2]
    np.testing.assert_array_equal(loaded.encode(["a long text about rice"]), before[2])
    for name in ("mean", "cls"):
        scores, expected = (
            found.scores[score_column(label)].to_numpy() for label in (name, f"{name} folder")
        )
        np.testing.assert_allclose(scores, expected, atol=1e-5)
    assert (
        np.abs(found.scores["cosine of mean"].to_numpy() - found.scores["cosine of cls"].to_numpy()).max()
        > 1e-3
    )


def test_domains_and_models_with_names_of_averages_and_columns_lose_nothing():
    names = {"low": "pooled", "high": "pair_weighted_mean"}
    renamed = table_of([(score, label, names[domain]) for score, label, domain in TWO_SCALES])
    found = []
    for table, label in ((table_of(TWO_SCALES), "given"), (renamed, "label")):
        found.append(evaluate_scorers({label: [Scorer(label, given)]}, table, bootstrap=10))
    plain, odd = found
    assert odd.models[0].pooled == plain.models[0].pooled
    assert odd.models[0].pair_weighted_mean == plain.models[0].pair_weighted_mean
    for name, other in names.items():
        assert odd.models[0].views[view_of_domain(other)] == plain.models[0].domains[name]
    assert odd.scores["label"].to_pylist() == renamed["label"].to_pylist()
    assert odd.scores[score_column("label")].to_pylist() == plain.scores[score_column("given")].to_pylist()
    frame = odd.to_pandas(all_columns=True)
    assert len(frame) == len(plain.to_pandas()) == 4
    assert not frame.duplicated(["view", "domain"]).any()


def test_models_that_order_close_cosines_otherwise_are_not_the_same():
    models = {
        label: [Scorer(label, lambda *pairs, sign=sign: 1 + sign * 1e-6 * given(*pairs))]
        for label, sign in (("one", 1), ("other", -1), ("again", 1))
    }
    found = evaluate_scorers(models, separated(), bootstrap=20)
    assert found.settings["same_model"] == {"again": "one"}
    one, other, _ = (model.pooled.metrics["roc_auc"] for model in found.models)
    assert one + other == pytest.approx(1)
    assert one > 0.9


def test_models_of_the_same_runs_in_other_shares_are_not_the_same():
    one, other = given, lambda *pairs: given(*pairs) ** 2
    runs = {"oneone": (one, one, other), "others": (one, other, other), "again": (other, one, one)}
    models = {
        label: [Scorer(f"{label} #{n}", score) for n, score in enumerate(scores)]
        for label, scores in runs.items()
    }
    found = evaluate_scorers(models, separated(60), bootstrap=20)
    assert found.settings["same_model"] == {"again": "oneone"}


def trained(label: str, shift: float, seed: int) -> Scorer:
    """A run of a way of training: the given scores, better or worse by its seed, with separate noise."""
    generator = np.random.default_rng(seed)

    def score(*pairs):
        scores = given(*pairs)
        return scores + shift * (scores > np.median(scores)) + 0.02 * generator.normal(size=len(scores))

    return Scorer(label, score)


def test_runs_are_compared_by_intervals():
    shifts = {"one": (0.1, -0.1, 0.0), "other": (-0.05, 0.1, 0.0)}
    models = {
        label: [trained(f"{label} {seed}", shift, seed) for seed, shift in enumerate(each)]
        for label, each in shifts.items()
    }
    models |= {**GIVEN, "noisy": [shifted("noisy", 1.0)]}
    found = evaluate_scorers(models, separated(), bootstrap=50, margin=0.2)
    gaps = {
        (each.first, each.second): each
        for each in found.differences
        if (each.group, each.metric) == (view_of_domain("d"), "roc_auc")
    }
    assert gaps["one", "other"].p_holm > 0.05
    assert gaps["one", "other"].equivalent
    worse = gaps["one", "noisy"]
    assert worse.p_value <= worse.p_holm < 0.01
    assert not worse.equivalent
    strict = evaluate_scorers(models, separated(), bootstrap=50, margin=1e-6)
    assert not any(each.equivalent for each in strict.differences if each.value)
    assert strict.settings["margin"] == 1e-6
    without = evaluate_scorers(models, separated(), bootstrap=0).differences
    assert {(each.interval, each.p_value, each.equivalent) for each in without} == {(None, None, False)}


def test_the_same_model_is_named_so(pairs_folder, plain_model, tmp_path):
    copy = shutil.copytree(plain_model, tmp_path / "copy")
    (copy / "README.md").write_text("---\nsentence_experts:\n  untrained: true\n---\n# A model\n")
    found = evaluate({"base": plain_model, "copy": copy}, pairs_folder, baseline="tfidf", bootstrap=20)
    assert found.settings["same_model"] == {"copy": "base"}
    assert {(each.first, each.second) for each in found.differences} == {("base", "TF-IDF")}
    base, other, _ = found.models
    assert base.pooled == other.pooled
    said = report_of(found).verdict.lines()
    assert "copy and base give the same cosines." in said
    assert "copy is UNTRAINED: identical to the base." in said
    assert any(line.startswith("Next: Train copy again") for line in said)
    copies = [copy, shutil.copytree(copy, tmp_path / "other")]
    seeds = evaluate({"base": plain_model, "copies": copies}, pairs_folder, bootstrap=20)
    assert (seeds.settings["same_model"], seeds.differences) == ({"copies": "base"}, ())


def test_prompts_that_no_domain_has_are_told(pairs_folder, plain_model, caplog):
    model = SentenceTransformer(str(plain_model), device="cpu")
    model.prompts = {"query": "query: ", "document": "passage: "}
    caplog.set_level("INFO")
    evaluate(model, pairs_folder, bootstrap=0)
    assert "texts are encoded without a prompt; `route_map` names one of query, document" in caplog.text
    caplog.clear()
    evaluate(model, pairs_folder, bootstrap=0, route_map={"*": "query"})
    assert "without a prompt" not in caplog.text


def test_runs_that_are_one_are_no_seeds():
    runs = [shifted(f"m #{seed}", 0.3, 1) for seed in (1, 2, 3)]
    found = evaluate_scorers({"m": runs, **GIVEN}, separated(), bootstrap=100, baseline=["given"])
    assert found.settings["same_run"] == {"m #2": "m #1", "m #3": "m #1"}
    said = " ".join(report_of(found).verdict.findings)
    assert "m #2 and m #1 give the same cosines" in said
    assert "There is one training run of m" in said


def test_stated_negatives_of_test_are_pairs(tmp_path: Path):
    rows = [
        {"anchor": f"rice {n}", "positive": f"rice field {n}", "negative": f"sleep {n}", "label": 1}
        for n in range(20)
    ]
    found = evaluate("tfidf", rows, bootstrap=0)
    assert (found.models[0].pooled.pairs, found.models[0].pooled.positives) == (40, 20)
    assert found.models[0].pooled.metrics["roc_auc"] > 0.5
    given = Pairs.from_tables(test=rows + rows[:5])
    assert evaluate("tfidf", given, bootstrap=0).models[0].pooled.pairs == 45, "a negative counts once"
    given.save(tmp_path / "pairs")
    for kept in (str(tmp_path / "pairs"), Pairs.open(tmp_path / "pairs")):
        found = evaluate("tfidf", kept, bootstrap=0)
        assert (found.models[0].pooled.pairs, found.settings["pairs"]) == (45, "pairs")
    none = Pairs.from_tables(train=rows, validation=pd.DataFrame(rows).iloc[:0], test=rows)
    assert Pairs.of(none, labelled=True).split("validation").num_rows == 0
