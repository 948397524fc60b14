"""What levels read: the same for a document alone, among others, and from a store of frozen layers."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from neural.tiny import FAMILIES, TEXTS, tiny
from xmcascade.neural import Encoder, Reader, TokenStore, padded, reader, torch_threads

READS = ((1, 2), (3,))
MANY = [*TEXTS, "", "dog", *(" ".join(["quick", "cats", "sing"] * n) for n in range(1, 9)), *TEXTS]

every_family = pytest.mark.parametrize("family", [*FAMILIES, "minilm"])


def make(family="bert", pooling="mean", texts=MANY):
    encoder = tiny(family)
    return Reader(encoder, READS, pooling), TokenStore.of(texts, encoder.tokenizer, 64)


@every_family
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_features_are_those_of_the_encoder(family, pooling):
    read, tokens = make(family, pooling)
    read.encoder.set_dropout(0.5)
    read.encoder.model.train()  # reading knows no dropout
    found = read.encode(tokens)
    assert [(one.dtype, one.shape) for one in found] == [(np.float32, (len(MANY), w)) for w in (32, 16)]
    assert read.widths == [32, 16]
    for doc in range(len(MANY)):
        ids, real = padded(tokens, [doc], read.encoder.pad, read.encoder.left)
        with torch.no_grad():
            alone = read.encoder.features(torch.from_numpy(ids), torch.from_numpy(real), READS, pooling)
        for one, wanted in zip(found, alone, strict=True):
            np.testing.assert_allclose(one[doc], wanted[0], atol=1e-5, rtol=1e-4)


@every_family
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_what_a_document_gets_depends_on_itself_alone(family, pooling, monkeypatch):
    read, tokens = make(family, pooling)
    docs = np.array([5, 0, 17, 3, 3])
    with torch_threads(1):
        together = read.encode(tokens)
        monkeypatch.setattr(reader, "DOCS_AT_ONCE", 1)
        monkeypatch.setattr(reader, "TOKENS_AT_ONCE", 1)
        alone = read.encode(tokens, docs)
    for some, whole in zip(alone, together, strict=True):
        np.testing.assert_allclose(some, whole[docs], atol=1e-5, rtol=1e-4)
        if family not in ("mpnet", "xlnet"):  # their attention rounds by the size of the batch
            assert some.tobytes() == whole[docs].tobytes()
    for threads in (2, 8):
        with torch_threads(threads):
            for some, whole in zip(read.encode(tokens, docs[:2]), together, strict=True):
                np.testing.assert_allclose(some, whole[docs[:2]], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_the_default_encoder_reads_the_same_alone_and_packed(pooling, monkeypatch):
    encoder = Encoder.load()
    read, tokens = Reader(encoder, READS, pooling), TokenStore.of(MANY, encoder.tokenizer, 64)
    found = []
    for size in (1, 64, 10_000):
        monkeypatch.setattr(reader, "TOKENS_AT_ONCE", size)
        with torch_threads(1):
            found.append([level.tobytes() for level in read.encode(tokens)])
    assert found[0] == found[1] == found[2]


@every_family
def test_training_may_round_and_answers_do_not(family, tmp_path):
    read, tokens = make(family)
    rounding = replace(read, arithmetic="bfloat16")
    docs = np.arange(len(MANY))
    for exact, rounded in zip(read.batch(tokens, docs), rounding.batch(tokens, docs), strict=True):
        assert rounded.dtype == torch.float32 and rounded.requires_grad
        np.testing.assert_allclose(rounded.detach(), exact.detach(), atol=0.1)
        assert not torch.equal(rounded, exact)
    for exact, rounded in zip(read.encode(tokens), rounding.encode(tokens), strict=True):
        assert exact.tobytes() == rounded.tobytes()
    for exact, kept in zip(read.encode(tokens), rounding.encode(tokens, folder=tmp_path), strict=True):
        np.testing.assert_allclose(kept, exact, atol=0.1)


def test_threads_change_nothing_that_is_rounded():
    encoder = Encoder.load()
    read = Reader(encoder, ((3, 4), (6,)), "mean", arithmetic="bfloat16")
    tokens = TokenStore.of(MANY * 3, encoder.tokenizer, 64)
    found = []
    for threads in (1, 2):
        with torch_threads(threads):
            sum(x.square().sum() for x in read.batch(tokens, np.arange(len(tokens)))).backward()
        found.append({name: p.grad.numpy().tobytes() for name, p in encoder.model.named_parameters()})
        encoder.model.zero_grad()
    assert found[0] == found[1]


def test_features_can_be_files(tmp_path):
    read, tokens = make()
    for kept, whole in zip(read.encode(tokens, folder=tmp_path), read.encode(tokens), strict=True):
        assert isinstance(kept, np.memmap) and kept.dtype == np.float16
        np.testing.assert_allclose(kept, whole, atol=1e-3, rtol=1e-3)


def test_no_documents():
    read, tokens = make()
    assert [one.shape for one in read.encode(tokens, np.zeros(0, np.int64))] == [(0, 32), (0, 16)]


@every_family
def test_stored_outputs_of_frozen_layers_stand_in_for_them(family, tmp_path):
    read, tokens = make(family)
    read.reads = ((2,), (3,))
    read.encoder.freeze(2)
    wanted, docs = read.encode(tokens), np.array([1, 7, 2])
    of_batch = read.batch(tokens, docs)
    read.store(tokens, tmp_path)
    with torch.no_grad():
        for layer in read.encoder._layers[:2]:
            for parameter in layer.parameters():
                parameter.fill_(torch.nan)  # they are not run
    for found, whole in zip(read.encode(tokens), wanted, strict=True):
        np.testing.assert_allclose(found, whole, atol=0.02, rtol=0.02)  # kept as float16
    for found, whole in zip(read.batch(tokens, docs), of_batch, strict=True):
        assert found.requires_grad == whole.requires_grad
        torch.testing.assert_close(found, whole, atol=0.02, rtol=0.02)
    other = TokenStore.of(TEXTS, read.encoder.tokenizer, 64)
    assert all(one.isnan().all() for one in read.batch(other, np.arange(4)))  # not their documents


def test_threads_of_torch_are_given_back():
    before = torch.get_num_threads()
    with pytest.raises(KeyError), torch_threads(before + 2):
        assert torch.get_num_threads() == before + 2
        raise KeyError
    assert torch.get_num_threads() == before
