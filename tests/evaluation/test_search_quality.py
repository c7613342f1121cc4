from __future__ import annotations

import json

import numpy as np
import pytest

from helpers.samples import make_tiny_encoder, write_corpus
from sentence_experts.errors import InputError, RouteError, UsageError
from sentence_experts.evaluation.search_quality import BM25, JudgedPapers, Judgements, evaluate_search
from sentence_experts.report.write import write_report
from sentence_experts.retrieval.papers import Papers

WORDS = ["rice", "wheat", "sleep", "memory", "rust", "drought", "neuron", "leaf"]


@pytest.fixture
def corpus(tmp_path):
    papers = [(f"p{n}", f"{word} study", f"About {word}.", 2000 + n, False) for n, word in enumerate(WORDS)]
    return write_corpus(tmp_path / "corpus", papers)


def judge(folder, lines, queries):
    folder.mkdir(exist_ok=True)
    (folder / "qrels.txt").write_text("\n".join(lines) + "\n")
    (folder / "queries.tsv").write_text("".join(f"{name}\t{text}\n" for name, text in queries.items()))
    return folder / "qrels.txt"


@pytest.fixture
def qrels(tmp_path):
    lines = ["q1 0 p0 2", "q1 0 p5 1", "q1 0 p3 0", "q2 0 p2 1", "q2 0 elsewhere 1", "q3 0 gone 1"]
    return judge(tmp_path / "judged", lines, {"q1": "rice", "q2": "sleep", "q3": "nothing"})


def test_both_layouts_say_the_same(tmp_path, qrels):
    trec = Judgements.read(qrels)
    folder = tmp_path / "beir" / "qrels"
    folder.mkdir(parents=True)
    lines = ["query-id\tcorpus-id\tscore"]
    lines += [f"{q}\t{paper}\t{grade:g}" for q, of in trec.relevance.items() for paper, grade in of.items()]
    (folder / "test.tsv").write_text("\n".join(lines))
    rows = [json.dumps({"_id": name, "text": text}) for name, text in trec.queries.items()]
    (folder.parent / "queries.jsonl").write_text("\n".join(rows))
    assert Judgements.read(folder / "test.tsv") == trec
    assert trec.relevance["q1"] == {"p0": 2, "p5": 1, "p3": 0}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("q1 0 p0", "line 1: expected"),
        ("q1 0 p0 x", "line 1"),
        ("q1 0 p0 nan", "line 1"),
        ("q1 0 p0 1e999", "line 1"),
        ("q1 0 p0 1 2", "line 1"),
        ("", "no judgements"),
    ],
)
def test_other_layouts_are_refused_with_their_place(tmp_path, line, message):
    with pytest.raises(InputError, match=message):
        Judgements.read(judge(tmp_path, [line], {"q1": "rice"}))


def test_a_judged_query_needs_its_text(tmp_path):
    with pytest.raises(InputError, match="no text of query 'q1'"):
        Judgements.read(judge(tmp_path, ["q1 0 p0 1"], {"q2": "rice"}))
    (tmp_path / "queries.tsv").unlink()
    with pytest.raises(InputError, match="give `queries`"):
        Judgements.read(tmp_path / "qrels.txt")


def test_metrics_are_those_of_trec_eval(corpus, qrels):
    data = JudgedPapers.of(Judgements.read(qrels), Papers(corpus))
    assert (len(data.texts), data.left_out, data.missing) == (2, 1, 2)
    rankings = [np.array([3, 5, 0]), np.array([1, 0, 4])]
    ndcg, recall = data.figures(rankings)
    gained, ideal = 1 / np.log2(3) + 2 / np.log2(4), 2 / np.log2(2) + 1 / np.log2(3)
    assert ndcg.tolist() == pytest.approx([gained / ideal, 0])
    assert recall.tolist() == [1, 0]
    pytrec_eval = pytest.importorskip("pytrec_eval")
    theirs = pytrec_eval.RelevanceEvaluator({"q1": {"p0": 2, "p5": 1, "p3": 0}}, {"ndcg_cut_10"}).evaluate(
        {"q1": {"p3": 3.0, "p5": 2.0, "p0": 1.0}}
    )
    assert ndcg[0] == pytest.approx(theirs["q1"]["ndcg_cut_10"])


def test_every_route_stands_beside_bm25(tmp_path, minilm, corpus, qrels):
    model = make_tiny_encoder(tmp_path / "experts", minilm, ("crops", "neuro"))
    found = evaluate_search(str(model), qrels, corpus, out=tmp_path / "out")
    frame = found.to_pandas(all_columns=True)
    assert frame["model"].tolist() == [BM25, *["experts"] * 4]
    assert frame["route"].tolist() == ["", "crops", "crops", "neuro", "neuro"]
    assert frame["hybrid"].tolist() == [False, False, True, False, True]
    assert frame["gain"].tolist() == pytest.approx((frame["ndcg"] - frame["ndcg"][0]).tolist())
    assert all(
        low <= value <= high for value, (low, high) in zip(frame["ndcg"], frame["ndcg_interval"], strict=True)
    )
    stored = json.loads((tmp_path / "out" / "search.json").read_text())
    assert stored["queries"] == 2
    assert "Only 2 queries were judged" in " ".join(stored["verdict"])
    report = write_report(found, tmp_path / "out").read_text()
    assert "| experts crops hybrid |" in report
    assert evaluate_search(str(model), qrels, corpus).metrics == found.metrics
    with pytest.raises(RouteError, match="no route 'x'"):
        evaluate_search(str(model), qrels, corpus, route=["x"])


def test_what_cannot_be_measured_is_refused(tmp_path, corpus, qrels):
    with pytest.raises(InputError, match="none of the papers that are judged relevant"):
        evaluate_search("minilm", judge(tmp_path, ["q1 0 other 1"], {"q1": "x"}), corpus)
    with pytest.raises(UsageError, match="`tfidf` is for pairs"):
        evaluate_search("tfidf", qrels, corpus)
