"""XML-CNN and AttentionXML: what they may be told, and the way down the tree."""

import numpy as np
import pytest

from neural.runs import N_LABELS, make_lists
from neural.tiny import save_tiny
from xmcascade import XMLCNN, AttentionXML, load
from xmcascade.errors import ModelFolderError, SettingError
from xmcascade.store import load_folder, save_folder

LABELS = [f"label {i:02}" for i in range(N_LABELS)]
SMALL = {"hidden": 16, "training": {"epochs": 2.0, "batch": 8}, "threads": 1}


@pytest.fixture(scope="module")
def lists():
    texts, labels = make_lists(60)
    return texts, [[LABELS[label] for label in own] for own in labels]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory, lists):
    folder = tmp_path_factory.mktemp("encoder")
    save_tiny(folder, texts=lists[0], layers=1, width=16)
    return str(folder)


@pytest.mark.parametrize("kind", [XMLCNN, AttentionXML])
def test_what_is_said_of_layers_is_refused(kind):
    for bad in ({"freeze_layers": 1}, {"pooling": "cls"}):
        with pytest.raises(SettingError, match=r"no encoder layer is used"):
            kind(**bad)


def test_a_network_without_clusters_unless_told(encoder, lists):
    model = XMLCNN(encoder=encoder, filters=4, **SMALL).fit(*lists)
    assert model._fitted().state.cascade.tree.sizes == [N_LABELS]
    model = XMLCNN(encoder=encoder, filters=4, tree={"levels": [4]}, tfidf=True, **SMALL).fit(*lists)
    assert model._fitted().state.cascade.tree.sizes == [4, N_LABELS]
    assert len(model.predict(["w0a"], k=N_LABELS)[0]) == N_LABELS


def test_the_way_down_gives_the_scores_of_the_labels_it_finds(encoder, lists):
    model = AttentionXML(encoder=encoder, shared=8, tree={"levels": [2, 4]}, shortlist=5, **SMALL).fit(*lists)
    found = model.predict(lists[0][:9], k=N_LABELS)
    for text, row in zip(lists[0], found, strict=False):
        labels = [prediction.label for prediction in row]
        assert sorted(labels) == LABELS
        scored = model.score([text], labels)[0]
        np.testing.assert_allclose([p.score for p in row], [p.score for p in scored], atol=1e-5)
    narrow = model.predict(lists[0][:9], k=1)
    assert [row[0].label for row in narrow] == [row[0].label for row in found]


def test_few_clusters_go_on(encoder, lists):
    model = AttentionXML(encoder=encoder, shared=8, tree={"levels": [4]}, shortlist=1, **SMALL).fit(*lists)
    tree = model._fitted().state.tree
    cluster = np.repeat(np.arange(4), np.diff(tree.offsets[0]))[tree.positions]
    for row in model.rank(lists[0], k=2).labels:
        real = row[row >= 0]
        assert len(set(cluster[real])) <= 2  # as many as labels are asked for
    assert (model.rank(lists[0], k=1).labels >= 0).all()


def test_levels_have_networks_of_their_own(encoder, lists):
    model = AttentionXML(encoder=encoder, shared=8, tree={"levels": [4]}, **SMALL).fit(*lists)
    one, two = (level.network.embeddings.weight for level in model._fitted().state.levels)
    assert not np.array_equal(one.detach().numpy(), two.detach().numpy())


def test_parts_that_do_not_fit_are_refused(encoder, lists, tmp_path):
    AttentionXML(encoder=encoder, shared=8, tree={"levels": [4]}, **SMALL).fit(*lists).save(
        tmp_path / "model"
    )
    manifest, arrays, strings = load_folder(tmp_path / "model")
    for name, array in (
        ("1.rows", arrays["1.rows"][:-1]),
        ("0.biases", arrays["0.biases"].astype(np.float64)),
    ):
        save_folder(
            tmp_path / "bad",
            kind=manifest.kind,
            settings=manifest.settings,
            n_labels=manifest.n_labels,
            arrays={**arrays, name: array},
            strings=strings,
            values=manifest.values,
        )
        with pytest.raises(ModelFolderError, match=r"do not fit together.*Remedy"):
            load(tmp_path / "bad")
