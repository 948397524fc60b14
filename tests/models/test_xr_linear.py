import json
import logging
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp

from contract.world import hashes
from xmcascade import Bonsai, Corpus, DiSMEC, NearestNeighbours, Parabel, XRLinear, load, make_synthetic
from xmcascade.errors import DataError, ModelFolderError
from xmcascade.kernels import solver
from xmcascade.linear import machine
from xmcascade.store import Strings
from xmcascade.tree import LabelTree, tree_to_json

TRAIN = make_synthetic(3000, 300, seed=1)
TEST = make_synthetic(500, 300, seed=1, part=1)


@pytest.fixture(scope="module")
def precision():
    models = {
        "nearest": NearestNeighbours(),
        "xr-linear": XRLinear(),
        "matcher": XRLinear(negatives="teacher+matcher", beam=4),
        "matcher only": XRLinear(negatives="matcher", beam=4, tree={"arity": 4, "max_leaf": 20}),
        "cost-sensitive": XRLinear(cost_sensitive=True),
        "parabel": Parabel(),
        "bonsai": Bonsai(tree={"arity": 8}),
        "dismec": DiSMEC(),
        "logistic": XRLinear(linear={"loss": "logistic", "cost": 30}, combine="sigmoid"),
        "bfloat16": XRLinear(linear={"precision": "bfloat16"}),
        "smoothed": XRLinear(smoothing=5),
    }
    return {
        name: model.fit(TRAIN).evaluate(TEST, replicates=0).metrics["P@1"] for name, model in models.items()
    }


@pytest.mark.parametrize(
    "name",
    [
        *("xr-linear", "matcher", "matcher only", "cost-sensitive", "parabel", "bonsai", "dismec"),
        *("logistic", "bfloat16", "smoothed"),
    ],
)
def test_every_linear_method_is_about_as_good_as_the_best(precision, name):
    assert precision[name] > 0.9 * max(precision.values())
    assert precision[name] > 50


def test_a_tree_is_built_where_there_are_many_labels():
    tree = XRLinear().fit(TRAIN)._learnt.state.ranker.members[0].tree
    assert tree.sizes == [2, 300]
    assert XRLinear().fit(TRAIN.take(range(50))).derived["levels"]["value"][-1] == 300


def test_trees_of_an_ensemble_differ_and_are_averaged(tmp_path):
    model = XRLinear(trees=2).fit(TRAIN)
    first, second = model._learnt.state.ranker.members
    assert not np.array_equal(first.tree.order, second.tree.order)
    model.save(tmp_path / "m")
    again = load(tmp_path / "m")
    texts = list(TEST.texts[:20])
    assert again.predict(texts) == model.predict(texts)
    asked = [[prediction.label for prediction in row] for row in model.predict(texts)]
    assert model.score(texts, asked) == model.predict(texts)


def test_relevance_weights_change_what_is_learnt():
    plain = XRLinear().fit(TRAIN)._learnt.state.ranker.members[0].weights.weights
    weighed = XRLinear(cost_sensitive=True).fit(TRAIN)._learnt.state.ranker.members[0].weights.weights
    assert len(plain) != len(weighed) or not np.array_equal(plain, weighed)


# What the tree is built from ------------------------------------------------------------------------------


def clusters(model):
    """The label names in each of the finest clusters."""
    tree, names = model._learnt.state.ranker.members[0].tree, model.label_names
    bounds = tree.offsets[-1]
    return {frozenset(names[i] for i in tree.order[low:high]) for low, high in pairwise(bounds)}


TOPICS = {"sport": "ball goal team", "music": "song drum choir"}
COLOURS = {"red": "crimson scarlet", "blue": "azure navy"}
# The documents tell sport from music, the labels' texts red from blue. Ids do not go by either.
LABELS = {f"{i} {t} {c}": (t, c) for i, (t, c) in enumerate([(t, c) for c in COLOURS for t in TOPICS] * 2)}


def of(word):
    return frozenset(name for name in LABELS if word in name)


@pytest.fixture(scope="module")
def coloured():
    every = " ".join(COLOURS.values())  # a word of a label counts where documents have it
    texts = [f"{TOPICS[topic]} {every}" for topic, _ in LABELS.values()] * 3
    own = {name: COLOURS[colour] for name, (_, colour) in LABELS.items()}
    return Corpus.from_lists(texts, [[name] for name in LABELS] * 3, label_texts=own)


def test_label_features_decide_what_the_tree_is_built_from(coloured):
    def found(kind, n_clusters):
        return clusters(XRLinear(label_features=kind, tree={"levels": [n_clusters]}).fit(coloured))

    assert found("pifa", 2) == {of("sport"), of("music")}
    assert found("text", 2) == {of("red"), of("blue")}
    assert found("both", 4) == {of(topic) & of(colour) for topic in TOPICS for colour in COLOURS}


@pytest.mark.parametrize("kind", ["text", "both"])
def test_label_features_of_text_need_texts_of_the_labels(coloured, kind):
    said = (
        rf"label features '{kind}' need texts of the labels\. Remedy: give the labels texts, or use \"pifa\""
    )
    with pytest.raises(DataError, match=said):
        XRLinear(label_features=kind).fit(replace(coloured, label_texts=None))


UNSEEN = ["unseen 1 sport", "unseen 2 music", "unseen 3 sport", "unseen 4 music"]


@pytest.mark.parametrize("smoothing", [0, 2])
@pytest.mark.parametrize("kind", ["pifa", "text", "both"])
def test_a_label_without_documents_is_put_where_its_text_belongs(kind, smoothing):
    seen = [f"{i} {topic}" for i in range(6) for topic in TOPICS]
    names = [*seen, *UNSEEN, "unseen 5 without text"]
    texts = [TOPICS[name.split()[-1]] if name[-1] != "t" else "something else" for name in names]
    own = dict(zip(names[:-1], texts, strict=False))
    corpus = Corpus.from_lists(texts, [[name] for name in names], label_texts=own).take(range(len(seen)))
    assert corpus.label_counts()[-5:].tolist() == [0] * 5
    model = XRLinear(label_features=kind, smoothing=smoothing, tree={"levels": [2]}).fit(corpus)
    one, other = (group - {names[-1]} for group in clusters(model))
    assert {one, other} == {frozenset(n for n in names if n.endswith(topic)) for topic in TOPICS}
    order = model._learnt.state.ranker.members[0].tree.order
    assert sorted(order) == list(range(len(names)))  # the label of which nothing is known has a place too
    [found] = model.predict(["goal"], k=100)
    assert {prediction.label for prediction in found} == set(names)


def test_smoothing_puts_a_rare_label_beside_its_companions():
    seen = [f"{i} {topic}" for i in range(3) for topic in TOPICS]
    texts = [TOPICS[name.split()[-1]] for name in seen] * 5
    labels = [[name] for name in seen] * 5
    texts += [TOPICS["music"], TOPICS["sport"]]  # what they say is not what they are about
    labels += [["rare sport", "0 sport", "1 sport"], ["rare music", "0 music", "1 music"]]
    corpus = Corpus.from_lists(texts, labels)
    sport, music = (
        frozenset(name for name in corpus.label_names if name.endswith(topic)) for topic in TOPICS
    )
    plain, smoothed = (
        clusters(XRLinear(smoothing=smoothing, tree={"levels": [2]}).fit(corpus)) for smoothing in (0, 2)
    )
    assert smoothed == {sport, music}
    assert plain == {sport - {"rare sport"} | {"rare music"}, music - {"rare music"} | {"rare sport"}}


# A tree from a file ---------------------------------------------------------------------------------------


def write_tree(path, tree, names=TRAIN.label_names):
    path.write_text(json.dumps(tree_to_json(tree, names)))
    return str(path)


def given_tree(seed=0):
    order = np.random.default_rng(seed).permutation(300)
    return LabelTree(order, (np.array([0, 2, 3]), np.array([0, 10, 200, 300])))


def test_a_tree_in_a_file_is_used_as_it_is(tmp_path):
    tree = given_tree()
    model = XRLinear(tree={"file": write_tree(tmp_path / "tree.json", tree)}, trees=2).fit(TRAIN)
    for member in model._learnt.state.ranker.members:
        assert member.tree.order.tolist() == tree.order.tolist()
        assert [level.tolist() for level in member.tree.offsets] == [[0, 2, 3], [0, 10, 200, 300]]
    assert model.derived["levels"]["value"] == [2, 3, 300]
    model.save(tmp_path / "m")
    (tmp_path / "tree.json").unlink()  # the model has it
    texts = list(TEST.texts[:20])
    assert load(tmp_path / "m").predict(texts) == model.predict(texts)


def test_a_tree_with_other_labels_is_refused_with_the_file_s_name(tmp_path):
    path, names = tmp_path / "tree.json", [*TRAIN.label_names[:-1], "nobody"]
    model = XRLinear(tree={"file": write_tree(path, LabelTree.flat(300), names)})
    with pytest.raises(DataError) as caught:
        model.fit(TRAIN)
    assert str(caught.value) == (
        f"{path}: labels that are not known: 'nobody'. Remedy: name every label once"
    )
    write_tree(path, LabelTree.flat(299), TRAIN.label_names[:-1])
    with pytest.raises(
        DataError, match=rf"tree\.json: labels missing in the tree: '{TRAIN.label_names[-1]}'"
    ):
        model.fit(TRAIN)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, r"cannot be read \(No such file or directory\)\. Remedy: check the path"),
        ("{", r"is not JSON .*Remedy: write it with tree_to_json"),
        ("[1]", r"there is no tree\. Remedy: give"),
    ],
)
@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_file_without_a_tree_is_refused(tmp_path, text, said, checkpoint):
    if text is not None:
        (tmp_path / "tree.json").write_text(text)
    model = XRLinear(tree={"file": str(tmp_path / "tree.json")})
    with pytest.raises(DataError, match=rf"{tmp_path}/tree\.json: {said}"):
        model.fit(TRAIN, checkpoint=tmp_path / "work" if checkpoint else None)
    assert not (tmp_path / "work").exists()


# Scores and weights ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("trees", [1, 3])
def test_logarithms_rank_as_the_products_do(trees):
    plain = XRLinear(trees=trees, beam=30).fit(TRAIN)
    logs = XRLinear(trees=trees, beam=30, combine="log-l3-hinge").fit(TRAIN)
    one, two = plain.rank(TEST, k=10), logs.rank(TEST, k=10)
    np.testing.assert_allclose(two.scores, np.log(one.scores), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(two.probabilities, one.probabilities, rtol=1e-4)
    assert (two.probabilities <= 1).all()
    near = np.isclose(one.scores[:, 1:], one.scores[:, :-1], rtol=1e-5)  # a mean may round either way
    alone = ~np.pad(near, ((0, 0), (1, 0))) & ~np.pad(near, ((0, 0), (0, 1)))
    same = one.labels == two.labels
    assert same.all() if trees == 1 else same[alone].all()
    assert alone.mean() > 0.9
    names = list(plain.label_names)
    texts, asked = list(TEST.texts[:50]), [[names[i] for i in row] for row in one.labels[:50]]
    scored = ([[p.score for p in row] for row in model.score(texts, asked)] for model in (plain, logs))
    np.testing.assert_allclose(*map(np.exp, [np.log(next(scored)), next(scored)]), rtol=1e-4)


def test_two_bytes_a_weight_rank_nearly_the_same_in_a_smaller_folder(tmp_path):
    def size(folder):
        return sum(path.stat().st_size for path in folder.iterdir())

    plain, short = (XRLinear(linear={"precision": kind}).fit(TRAIN) for kind in ("float32", "bfloat16"))
    one, two = plain.rank(TEST, k=5), short.rank(TEST, k=5)
    assert (one.labels[:, 0] == two.labels[:, 0]).mean() > 0.98
    np.testing.assert_allclose(two.scores[:, 0], one.scores[:, 0], atol=0.02)
    assert (one.scores != two.scores).any()
    plain.save(tmp_path / "plain")
    short.save(tmp_path / "short")
    n_weights = len(plain._learnt.state.ranker.members[0].weights.weights)
    assert size(tmp_path / "plain") - size(tmp_path / "short") > 1.9 * n_weights
    again = load(tmp_path / "short").rank(TEST, k=5)
    assert again.labels.tolist() == two.labels.tolist()
    assert again.scores.tolist() == two.scores.tolist()


def test_the_logistic_loss_learns_chances():
    """Its sigmoid is how often a label is right, which a hinge does not promise."""
    rng = np.random.default_rng(0)
    labels = [["rain"] if chance < 0.8 else ["snow"] for chance in rng.random(2000)]
    model = XRLinear(linear={"loss": "logistic", "threshold": 0}, combine="sigmoid")
    [found] = model.fit(["cloud"] * 2000, labels).predict(["cloud"])
    assert {p.label: round(p.probability, 1) for p in found} == {"rain": 0.8, "snow": 0.2}


# Going on after a kill ------------------------------------------------------------------------------------

MANY = {"n_docs": 1500, "n_labels": 2500, "seed": 1}  # ten panels
PROGRAM = f"""
import sys
from xmcascade import DiSMEC, make_synthetic
from xmcascade.linear import machine
machine.KEEP_SECONDS = 0.0
DiSMEC(threads=1, linear={{"tolerance": 0.01}}).fit(make_synthetic(**{MANY}), checkpoint=sys.argv[1])
"""


def pieces(folder):
    return sorted(path.parent.name for path in folder.glob("dismec-*/manifest.json"))


def kill_when_it_has_kept(folder, n_pieces):
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder)], stderr=subprocess.PIPE, text=True
    )
    end = time.monotonic() + 60
    while len(pieces(folder)) < n_pieces and process.poll() is None and time.monotonic() < end:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    _, said = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL, said
    return len(pieces(folder))


def test_a_fit_killed_twice_ends_in_the_same_bytes(tmp_path, caplog):
    corpus, folder = make_synthetic(**MANY), tmp_path / "work"
    DiSMEC(linear={"tolerance": 0.01}).fit(corpus).save(tmp_path / "whole")
    first = kill_when_it_has_kept(folder, 1)
    second = kill_when_it_has_kept(folder, first + 2)
    assert 1 <= first < second < 10
    with caplog.at_level(logging.INFO, "xmcascade"):
        DiSMEC(linear={"tolerance": 0.01}).fit(corpus, checkpoint=folder).save(tmp_path / "resumed")
    assert f"{second * 256:,} of 2,500 labels were kept" in caplog.text
    assert hashes(tmp_path / "resumed") == hashes(tmp_path / "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["resumed", "whole"]


class Killed(BaseException):
    pass


@pytest.fixture
def leave_unfinished(monkeypatch):
    """Stop a fit after some blocks, with what is finished kept."""

    def leave(model, corpus, folder, blocks=4):
        real, left = solver.train_labels, iter(range(blocks))

        def train(*arguments):
            if next(left, None) is None:
                raise Killed
            return real(*arguments)

        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(solver, "train_labels", train)
            patch.setattr(machine, "KEEP_SECONDS", 0.0)
            model.fit(corpus, checkpoint=folder)
        assert len([path for path in folder.iterdir() if path.name != "run"]) > 0
        assert model._learnt is None

    return leave


@pytest.mark.parametrize(
    "values",
    [
        {"negatives": "teacher+matcher"},  # what is kept decides what is learnt from
        {"trees": 2, "linear": {"precision": "bfloat16"}},
    ],
)
def test_levels_and_trees_go_on_too(tmp_path, leave_unfinished, values):
    corpus = TRAIN.take(range(800))

    def make():
        return XRLinear(threads=1, tree={"arity": 4, "max_leaf": 40}, **values)

    whole = make().fit(corpus)
    whole.save(tmp_path / "whole")
    sizes, trees = whole.derived["levels"]["value"], values.get("trees", 1)
    assert len(sizes) == 3
    last = (1 + sum(sizes[:-1])) * trees  # blocks in all: of the root, and of every cluster
    for blocks in (1, 3, 6, last - 1):
        leave_unfinished(make(), corpus, tmp_path / "work", blocks)
        make().fit(corpus, checkpoint=tmp_path / "work").save(tmp_path / "resumed")
        assert not (tmp_path / "work").exists()
        assert hashes(tmp_path / "resumed") == hashes(tmp_path / "whole")


def changed_labels(corpus):
    labels = corpus.labels.copy()
    labels.indices[0] = next(i for i in range(300) if i not in labels[0].indices)
    return replace(corpus, labels=labels)


CHANGED = {
    "a document": lambda c: replace(c, texts=Strings.of([*c.texts[:-1], c.texts[-1] + "x"])),
    "the order of documents": lambda c: c.take([1, 0, *range(2, 3000)]),
    "a document less": lambda c: c.take(range(2999)),
    "a label of a document": changed_labels,
    "a relevance weight": lambda c: replace(c, labels=c.labels * np.float32(2)),
    "a label's name": lambda c: replace(c, label_names=Strings.of([*c.label_names[:-1], "zzz"])),
    "a label's text": lambda c: replace(c, label_texts=Strings.of(["", *c.label_names[1:]])),
    "no texts of labels": lambda c: replace(c, label_texts=None),
}


def test_what_another_corpus_or_setting_left_is_refused(tmp_path, leave_unfinished):
    corpus, folder = replace(TRAIN, label_texts=TRAIN.label_names), tmp_path / "work"
    leave_unfinished(XRLinear(), corpus, folder)
    before = hashes(folder / "run")
    fits = {name: (XRLinear(), change(corpus)) for name, change in CHANGED.items()}
    fits["a setting"] = XRLinear(seed=1), corpus
    fits["a setting of a part"] = XRLinear(linear={"cost": 2}), corpus
    fits["a method"] = Bonsai(), corpus
    fits["features"] = XRLinear(), Corpus(labels=TRAIN.labels, label_names=TRAIN.label_names, features=EYE)
    for name, (model, other) in fits.items():
        with pytest.raises(
            ModelFolderError, match=r"work: holds unfinished work with other documents, settin"
        ):
            pytest.fail(f"{name}: {model.fit(other, checkpoint=folder)}")
        assert model._learnt is None
    assert hashes(folder / "run") == before
    XRLinear(threads=3).fit(corpus, checkpoint=folder).save(tmp_path / "m")  # threads change nothing
    XRLinear().fit(corpus).save(tmp_path / "whole")
    assert hashes(tmp_path / "m") == hashes(tmp_path / "whole")


EYE = sp.identity(3000, dtype=np.float32, format="csr")


@pytest.mark.parametrize("change", ["value", "place", "columns"])
def test_what_other_features_left_is_refused(tmp_path, leave_unfinished, change):
    corpus = Corpus(labels=TRAIN.labels, label_names=TRAIN.label_names, features=EYE)
    leave_unfinished(XRLinear(), corpus, tmp_path / "work")
    other = EYE.copy()
    if change == "value":
        other.data[7] = 2
    if change == "place":
        other.indices[7] = 8
    if change == "columns":
        other.resize(3000, 3001)
    with pytest.raises(ModelFolderError, match="other documents, settings or version"):
        XRLinear().fit(replace(corpus, features=other), checkpoint=tmp_path / "work")


def test_what_another_tree_in_the_same_file_left_is_refused(tmp_path, leave_unfinished):
    model = XRLinear(tree={"file": write_tree(tmp_path / "tree.json", given_tree(0))})
    leave_unfinished(model, TRAIN, tmp_path / "work")
    write_tree(tmp_path / "tree.json", given_tree(1))
    with pytest.raises(ModelFolderError, match="other documents, settings or version"):
        model.fit(TRAIN, checkpoint=tmp_path / "work")
    write_tree(tmp_path / "tree.json", given_tree(0))
    model.fit(TRAIN, checkpoint=tmp_path / "work")


def test_the_same_documents_in_another_piece_of_memory_go_on(tmp_path, leave_unfinished):
    leave_unfinished(XRLinear(), TRAIN, tmp_path / "work")
    longer = Strings.of(["first", *TRAIN.texts, "last"])
    names = Strings.of([*TRAIN.label_names, "more"])
    XRLinear().fit(replace(TRAIN, texts=longer[1:-1], label_names=names[:-1]), checkpoint=tmp_path / "work")


def test_documents_without_labels_do_not_keep_a_fit_from_going_on(tmp_path, leave_unfinished):
    labels = [TRAIN.label_set(i) for i in range(3000)]
    labels[5] = labels[99] = []
    corpus = Corpus.from_lists(TRAIN.texts, labels)
    leave_unfinished(XRLinear(), corpus, tmp_path / "work")
    XRLinear().fit(Corpus.from_lists(list(TRAIN.texts), labels), checkpoint=tmp_path / "work")


def test_a_damaged_piece_is_said_and_not_used(tmp_path, leave_unfinished):
    leave_unfinished(XRLinear(), TRAIN, tmp_path / "work")
    path = next(tmp_path.glob("work/*/arrays.safetensors"))
    raw = bytearray(path.read_bytes())
    raw[-3] ^= 4
    path.write_bytes(raw)
    model = XRLinear()
    with pytest.raises(
        ModelFolderError, match=r"arrays\.safetensors: .*SHA-256 differs.*Remedy: delete .*work and"
    ):
        model.fit(TRAIN, checkpoint=tmp_path / "work")
    assert model._learnt is None
    assert path.read_bytes() == raw
