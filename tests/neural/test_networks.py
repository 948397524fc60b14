"""Networks in an encoder's place: what they read, and what padding and batches must not change."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from neural.tiny import TEXTS, tiny
from xmcascade.errors import SettingError
from xmcascade.neural import NETWORKS, ConvNetwork, LstmNetwork, Reader, TokenStore, networks

SIZES = {ConvNetwork: {"filters": 6, "hidden": 10}, LstmNetwork: {"hidden": 8, "shared": 4}}


def make(kind, seed=0):
    network = kind.over(tiny(), seed, **SIZES[kind])
    return network, TokenStore.of(TEXTS, network.tokenizer, 32)


def read(network, tokens, docs):
    return Reader(network, ((1,),), "mean").batch(tokens, np.array(docs))[0]


@pytest.fixture(params=SIZES, ids=lambda kind: kind.kind)
def kind(request):
    return request.param


def test_embeddings_are_the_encoders_and_the_rest_follows_the_seed(kind):
    one, other, again = make(kind)[0], make(kind, seed=1)[0], make(kind)[0]
    assert torch.equal(one.embeddings.weight, tiny().embeddings.weight)
    states = [network.model.state_dict() for network in (one, other, again)]
    assert all(torch.equal(states[0][name], states[2][name]) for name in states[0])
    differ = [name for name in states[0] if not torch.equal(states[0][name], states[1][name])]
    assert differ and "tokens.weight" not in differ


def test_what_is_read_of_a_document_does_not_depend_on_the_others(kind):
    network, tokens = make(kind)
    together = read(network, tokens, [0, 1, 2, 3])
    for doc in range(4):
        alone = read(network, tokens, [doc])[0]
        own = together[doc] if kind is ConvNetwork else together[doc, : len(alone)]
        torch.testing.assert_close(own, alone)


def test_the_lstm_is_one_of_both_directions():
    network, tokens = make(LstmNetwork)
    twin = torch.nn.LSTM(16, 4, batch_first=True, bidirectional=True)
    state = network.model.state_dict()
    for way, end in (("ahead", ""), ("back", "_reverse")):
        for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"):
            getattr(twin, name + end).data.copy_(state[f"{way}.{name}"])
    for doc in range(4):
        ids = torch.from_numpy(tokens.ids[tokens.offsets[doc] : tokens.offsets[doc + 1]].astype(np.int64))
        expected = twin(network.embeddings(ids)[None])[0][0]
        found = read(network, tokens, [doc])[0]
        torch.testing.assert_close(found[: len(ids)], expected)
        assert not found[len(ids) :].any()


def test_filters_answer_in_the_part_of_the_text_where_they_fit():
    network, _ = make(ConvNetwork)
    model, ids = network.model, torch.arange(4, 20)[None]
    with torch.no_grad():
        embedded = torch.cat([model["tokens"](ids)[0], torch.zeros(7, 16)])
        expected = []
        for size in ConvNetwork.WINDOWS:
            answers = [
                torch.relu(model[f"window{size}"](embedded[i : i + size].T.flatten())) for i in range(16)
            ]
            pooled = [torch.stack(answers[2 * part : 2 * part + 2]).amax(0) for part in range(8)]
            expected.append(torch.stack(pooled).T.flatten())
        hidden = torch.relu(model["hidden"](torch.cat(expected)))
        torch.testing.assert_close(network.features(ids, ids > 0, ((1,),))[0][0], hidden)


def test_parts_of_tokens_and_biases_make_a_product():
    """Scaling all embeddings down to nothing leaves the biases: the rest is what tokens add."""
    network, tokens = make(ConvNetwork)
    for name in ("window2", "window4", "window8", "hidden"):
        torch.nn.init.zeros_(network.model[name].bias)
    ids = torch.from_numpy(tokens.ids[tokens.offsets[3] : tokens.offsets[4]].astype(np.int64))[None]
    rows = torch.randn(3, network.width)
    found = network.contributions(ids, ids >= 0, rows)
    assert found.shape == (3, ids.shape[1])
    with torch.no_grad():
        whole = rows @ network.features(ids, ids >= 0, ((1,),))[0][0]
    torch.testing.assert_close(found.sum(1), whole)  # without biases nothing is missing


def test_each_label_attends_in_its_own_way():
    network, tokens = make(LstmNetwork)
    with torch.no_grad():
        states, queries = read(network, tokens, [1, 3]), torch.randn(2, 5, 8)
        found = network.attend(states, queries)
        for doc in range(2):
            own = states[doc][: tokens.lengths[[1, 3][doc]]]
            for label in range(5):
                weights = torch.softmax(own @ queries[doc, label], 0)
                hidden = torch.relu(network.model["shared"](weights @ own))
                torch.testing.assert_close(found[doc, label], network.model["score"](hidden)[0])


def test_kept_and_restored(kind):
    network, tokens = make(kind)
    arrays, tokenizer, config = network.state()
    again = NETWORKS[config["model_type"]].restore(arrays, tokenizer, config)
    assert torch.equal(read(again, tokens, [0, 3]), read(network, tokens, [0, 3]))
    for changed in (
        {**config, "hidden": 12},
        {**config, "hidden": -2},
        {**config, "pad": -1},
        {**config, "tokens": 10**12},
    ):
        with pytest.raises(ValueError, match=r"arrays of|sizes of|hidden_size"):
            kind.restore(arrays, tokenizer, changed)
    with pytest.raises(ValueError, match=r"arrays of"):
        kind.restore({**arrays, "more": np.zeros(1)}, tokenizer, config)


def test_there_are_no_layers_to_freeze(kind):
    network, _ = make(kind)
    network.freeze(0)
    with pytest.raises(SettingError, match=r"1 frozen layers.*Remedy: use 0"):
        network.freeze(1)


def test_a_switch_of_the_process_is_turned_back_by_the_last_that_used_it():
    network, tokens = make(LstmNetwork)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda doc: read(network, tokens, [doc]), [0, 1, 2, 3] * 20))
    assert torch._C._get_mkldnn_enabled()
    with networks._plain:
        read(network, tokens, [0])
        assert not torch._C._get_mkldnn_enabled()
    assert torch._C._get_mkldnn_enabled()
