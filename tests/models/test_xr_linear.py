import numpy as np
import pytest

from xmcascade import Bonsai, DiSMEC, NearestNeighbours, Parabel, XRLinear, load, make_synthetic

TRAIN = make_synthetic(3000, 300, seed=1)
TEST = make_synthetic(500, 300, seed=1, part=1)


@pytest.fixture(scope="module")
def precision():
    models = {
        "nearest": NearestNeighbours(),
        "xr-linear": XRLinear(),
        "matcher": XRLinear(negatives="teacher+matcher", beam=4),
        "cost-sensitive": XRLinear(cost_sensitive=True),
        "parabel": Parabel(),
        "bonsai": Bonsai(tree={"arity": 8}),
        "dismec": DiSMEC(),
    }
    return {
        name: model.fit(TRAIN).evaluate(TEST, replicates=0).metrics["P@1"] for name, model in models.items()
    }


@pytest.mark.parametrize("name", ["xr-linear", "matcher", "cost-sensitive", "parabel", "bonsai", "dismec"])
def test_every_linear_method_is_about_as_good_as_the_best(precision, name):
    assert precision[name] > 0.9 * max(precision.values())
    assert precision[name] > 50


def test_a_tree_is_built_where_there_are_many_labels():
    tree = XRLinear().fit(TRAIN)._learnt.state.members[0].tree
    assert tree.sizes == [4, 300]
    assert XRLinear().fit(TRAIN.take(range(50))).derived["levels"]["value"][-1] == 300


def test_trees_of_an_ensemble_differ_and_are_averaged(tmp_path):
    model = XRLinear(trees=2).fit(TRAIN)
    first, second = model._learnt.state.members
    assert not np.array_equal(first.tree.order, second.tree.order)
    model.save(tmp_path / "m")
    again = load(tmp_path / "m")
    texts = list(TEST.texts[:20])
    assert again.predict(texts) == model.predict(texts)
    asked = [[prediction.label for prediction in row] for row in model.predict(texts)]
    assert model.score(texts, asked) == model.predict(texts)


def test_relevance_weights_change_what_is_learnt():
    plain = XRLinear().fit(TRAIN)._learnt.state.members[0].weights.weights
    weighed = XRLinear(cost_sensitive=True).fit(TRAIN)._learnt.state.members[0].weights.weights
    assert len(plain) != len(weighed) or not np.array_equal(plain, weighed)
