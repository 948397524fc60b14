"""Attention is measured on what a level reads, and means what it says."""

import numpy as np
import pytest

from contract.suite import fitted
from contract.world import make_corpus, make_lists
from neural.tiny import TEXTS, tiny
from xmcascade.models.views import look_inside
from xmcascade.neural import Reader, TokenStore
from xmcascade.report.attention import attention_of, entropy, label_attention


def looked(family="bert", pooling="cls", reads=((1, 2), (3,)), texts=TEXTS):
    encoder = tiny(family)
    reader = Reader(encoder, reads, pooling)
    tokens = TokenStore.of(texts, encoder.tokenizer, 64)
    return reader, tokens, attention_of(reader, tokens, "looking")


def test_entropy_in_bits():
    assert entropy(np.full(8, 1 / 8)) == pytest.approx(3)
    assert entropy([1.0, 0, 0]) == 0
    assert entropy([[0.5, 0.25, 0.25], [0, 0, 1]]).tolist() == [1.5, 0]


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "modernbert", "mpnet", "xlnet"])
def test_what_is_told_of_an_encoder(family, pooling):
    reader, tokens, (found, xs) = looked(family, pooling)
    assert found.self_mean.shape == found.self_most.shape == found.self_all.shape == (3,)
    assert (found.self_mean <= found.self_most + 1e-9).all()
    for shares in (found.self_mean, found.self_most, found.self_all, found.overlap):
        assert ((shares >= 0) & (shares <= 1 + 1e-6)).all()
    assert found.layers.shape == (len(TEXTS), 3) and found.levels.shape == (len(TEXTS), 2)
    assert (found.layers <= np.log2(tokens.lengths)[:, None] + 1e-4).all()
    np.testing.assert_allclose(found.levels[:, 0], found.layers[:, :2].mean(axis=1))
    np.testing.assert_allclose(found.overlap.diagonal(), 1, atol=1e-5)
    for own, read in zip(xs, reader.encode(tokens), strict=True):
        np.testing.assert_allclose(own, read, atol=1e-5)


def test_it_is_the_attention_of_the_family_itself():
    reader, tokens, (found, _) = looked(texts=TEXTS[:1])
    model = reader.encoder.model
    model.set_attn_implementation("eager")
    ids, _ = reader.tensors(tokens, np.zeros(1, np.int64))
    rows = [layer[0, :, 0].detach().numpy() for layer in model(ids, output_attentions=True).attentions]
    np.testing.assert_allclose(found.self_mean, [row[:, 0].mean() for row in rows], atol=1e-6)
    np.testing.assert_allclose(found.self_most, [row[:, 0].max() for row in rows], atol=1e-6)
    np.testing.assert_allclose(found.layers[0], [entropy(row).mean() for row in rows], atol=1e-5)


def test_looking_changes_nothing():
    reader, tokens, _ = looked()
    before = reader.encode(tokens)
    attention_of(reader, tokens, "looking")
    assert reader.encoder.model.config._attn_implementation == "sdpa"
    for one, other in zip(before, reader.encode(tokens), strict=True):
        np.testing.assert_array_equal(one, other)


def test_short_texts_are_not_mixed_with_padding():
    _, _, (found, _) = looked(texts=["a", "dog"], pooling="mean")
    assert (found.layers <= np.log2(3) + 1e-5).all()


def test_nodes_that_attend_themselves():
    (view,) = look_inside(fitted("attentionxml")).views
    documents = make_corpus(6, seed=1)
    found = label_attention(view, documents, np.zeros(6, np.int32))
    words = np.array([len(text.split()) for text in make_lists(6, seed=1)[0]])
    assert found.shape == (6, view.tree.n_levels)
    assert (found >= 0).all() and (found <= np.log2(8 * words + 2)[:, None]).all()
