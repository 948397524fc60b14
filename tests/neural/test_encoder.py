"""One encoder for all families: what is read, frozen and cut."""

import threading

import pytest
import torch

from neural.tiny import FAMILIES, TEXTS, assert_close, batch, tiny, tiny_config, tiny_tokenizer
from xmcascade.errors import SettingError
from xmcascade.neural import Encoder

ALL = [*FAMILIES, "minilm"]
POOLINGS = ["cls", "mean"]
READS = ((1, 2), (2,), (3,))

every_family = pytest.mark.parametrize("family", ALL)
every_pooling = pytest.mark.parametrize("pooling", POOLINGS)


def witness(encoder, ids, real, reads, pooling):
    """The same out of the hidden states that transformers itself returns."""
    more = {}
    if encoder.left:
        kinds = torch.zeros_like(ids)
        kinds[:, -1] = 2
        more["token_type_ids"] = kinds
    states = encoder.model(
        input_ids=ids, attention_mask=real.long(), output_hidden_states=True, **more
    ).hidden_states
    if encoder.family == "modernbert":  # all but the last lack the norm that the encoder ends with
        states = [*map(encoder.model.final_norm, states[:-1]), states[-1]]

    def pooled(state):
        if pooling == "cls":
            return state[:, -1 if encoder.left else 0]
        return torch.stack([one[own].mean(0) for one, own in zip(state, real, strict=True)])

    return [torch.cat([pooled(states[k]) for k in layers], 1) for layers in reads]


# What is read ---------------------------------------------------------------------------------------------


@every_family
@every_pooling
def test_features_are_hidden_states(family, pooling):
    encoder = tiny(family)
    ids, real = batch(encoder)
    reads = ((1, 2), (0,), (3,))
    with torch.no_grad():
        found = encoder.features(ids, real, reads, pooling)
        assert [(one.dtype, tuple(one.shape)) for one in found] == [
            (torch.float32, (4, 16 * len(layers))) for layers in reads
        ]
        assert_close(found, witness(encoder, ids, real, reads, pooling))


@every_family
@every_pooling
def test_the_batch_changes_nothing(family, pooling):
    encoder = tiny(family)
    texts = [*TEXTS, "", "dog " * 45]
    with torch.no_grad():
        together = encoder.features(*batch(encoder, texts), READS, pooling)
        alone = [encoder.features(*batch(encoder, [text]), READS, pooling) for text in texts]
    assert all(one.isfinite().all() for one in together)
    assert_close(together, [torch.cat(level) for level in zip(*alone, strict=True)])
    assert (together[-1].std(0) > 0.01).all()  # the documents differ, or nothing was tested


@every_family
@every_pooling
@pytest.mark.parametrize("texts", [sorted([*TEXTS, "", "dog " * 45], key=len), ["dog", "cats"], ["sing"]])
def test_packed_documents_do_not_see_one_another(family, pooling, texts):
    encoder = tiny(family)
    if not encoder.packs:
        pytest.skip("it does not pack")
    with torch.no_grad():
        alone = [encoder.features(*batch(encoder, [text]), READS, pooling) for text in texts]
        all_ids = sorted((encoder.tokenizer.encode(text).ids for text in texts), key=len)
        rows = torch.tensor([token for ids in all_ids for token in ids])
        found = encoder.packed(rows, [len(ids) for ids in all_ids], READS, pooling)
    assert_close(found, [torch.cat(level) for level in zip(*alone, strict=True)])


def test_the_families_that_pack():
    assert {family for family in ALL if tiny(family).packs} == {
        "bert", "roberta", "xlm-roberta", "camembert", "electra", "minilm"
    } & set(ALL)  # fmt: skip


@every_family
def test_a_look_tells_every_token_and_its_attention(family):
    encoder = tiny(family)
    ids, real = batch(encoder)
    reads = ((1, 2), (0,), (3,))
    before = encoder.model.config._attn_implementation
    features, attention = encoder.look(ids, real, reads)
    place = -1 if encoder.left else 0
    with torch.no_grad():
        assert_close([x[:, place] for x in features], encoder.features(ids, real, reads, "cls"))
        pooled = [
            torch.stack([own[here].mean(0) for own, here in zip(x, real, strict=True)]) for x in features
        ]
        assert_close(pooled, encoder.features(ids, real, reads, "mean"))
    heads = 4 if family == "minilm" else 2
    assert [tuple(layer.shape) for layer in attention] == [(4, heads, ids.shape[1], ids.shape[1])] * 3
    for layer in attention:
        rows = layer.transpose(1, 2)[real]
        torch.testing.assert_close(rows.sum(-1), torch.ones(rows.shape[:-1]))
        for own, here in zip(layer, real, strict=True):
            assert not own[:, here][:, :, ~here].any()  # padding gets nothing
    assert encoder.model.config._attn_implementation == before


@every_family
def test_what_stands_in_the_padding_is_never_read(family):
    encoder = tiny(family)
    ids, real = batch(encoder)
    other = torch.where(real, ids, encoder.tokenizer.token_to_id("dog"))
    if family in ("roberta", "xlm-roberta", "camembert", "mpnet"):
        pytest.skip("positions are counted by the id of the padding")
    with torch.no_grad():
        for pooling in POOLINGS:
            assert_close(
                encoder.features(ids, real, READS, pooling), encoder.features(other, real, READS, pooling)
            )


def test_xlnet_is_padded_on_the_left_and_read_at_its_end():
    encoder = tiny("xlnet")
    ids, real = batch(encoder)
    assert encoder.left
    assert (ids[:, -1] == encoder.tokenizer.token_to_id("<cls>")).all()
    assert real[:, -1].all() and not real[1, 0]
    assert not any(tiny(family).left for family in ALL if family != "xlnet")


@every_family
@every_pooling
def test_gradients_flow_as_through_the_whole_encoder(family, pooling):
    gradients = []
    for features in (Encoder.features, witness):
        encoder = tiny(family)
        ids, real = batch(encoder)
        sum(one.pow(2).sum() for one in features(encoder, ids, real, ((1,), (3,)), pooling)).backward()
        gradients.append({name: p.grad for name, p in encoder.model.named_parameters() if p.grad is not None})
    found, wanted = gradients
    assert len(found) > 15
    for name in found.keys() | wanted.keys():
        torch.testing.assert_close(found[name], wanted[name], atol=1e-3, rtol=1e-3, msg=name)


@every_family
def test_layers_above_the_highest_read_are_not_computed(family):
    encoder = tiny(family)
    ids, real = batch(encoder)
    with torch.no_grad():
        before = encoder.features(ids, real, ((1,), (2,)))
        for parameter in encoder._layers[2].parameters():
            parameter.fill_(torch.nan)
        assert_close(encoder.features(ids, real, ((1,), (2,))), before, atol=0, rtol=0)


def test_only_a_few_rows_of_a_berts_last_layer_are_computed():
    encoder = tiny("bert")
    ids, real = batch(encoder)
    seen = []
    encoder._layers[2].output.register_forward_hook(lambda module, args, out: seen.append(out.shape[1]))
    encoder.features(ids, real, READS, "cls")
    encoder.features(ids, real, READS, "mean")
    assert seen == [8, ids.shape[1]]


@every_pooling
def test_features_are_float32_whatever_they_are_computed_in(pooling):
    encoder = tiny("modernbert")
    ids, real = batch(encoder)
    with torch.autocast("cpu", torch.bfloat16):
        rough = encoder.features(ids, real, READS, pooling)
    assert {one.dtype for one in rough} == {torch.float32}
    assert_close(rough, encoder.features(ids, real, READS, pooling), atol=0.2, rtol=0.2)


def test_threads_do_not_mix():
    encoder = tiny("bert")
    batches = [batch(encoder, [text]) for text in TEXTS * 3]
    with torch.no_grad():
        wanted = [encoder.features(*one, READS)[2] for one in batches]
    found = [None] * len(batches)

    def work(i):
        with torch.no_grad():
            for _ in range(5):
                found[i] = encoder.features(*batches[i], READS)[2]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(batches))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert_close(found, wanted)


@pytest.mark.parametrize(
    ("reads", "pooling", "says"),
    [
        (((4,),), "cls", "use 1 to 3"),
        (((-1, 2),), "cls", "use 1 to 3"),
        ((), "cls", "no encoder layer"),
        (((1,), ()), "cls", "no encoder layer"),
        (((1,),), "max", '"cls" or "mean"'),
    ],
)
def test_what_cannot_be_read_is_refused(reads, pooling, says):
    encoder = tiny("bert")
    with pytest.raises(SettingError, match=says):
        encoder.features(*batch(encoder), reads, pooling)


@every_family
def test_a_document_may_have_as_many_tokens_as_it_says(family):
    encoder = tiny(family)
    assert encoder.max_tokens == (1 << 20 if family == "xlnet" else 64)
    ids, real = batch(encoder, ["dog " * 600])
    assert ids.shape[1] == min(encoder.max_tokens, 512)
    assert encoder.features(ids, real, ((3,),))[0].isfinite().all()


def test_a_foreign_tokenizer_is_refused():
    tokenizer = tiny_tokenizer()
    config = tiny_config("bert", tokenizer)
    tokenizer.add_tokens(["one more"])
    n_known = tokenizer.get_vocab_size()
    with pytest.raises(SettingError, match=f"knows {n_known} tokens and the encoder {n_known - 1}"):
        Encoder.build(config, tokenizer.to_str(), 0)


@pytest.mark.parametrize("family", ["albert", "t5", "vit", "clip"])
def test_a_family_that_works_otherwise_is_refused(family):
    config = {"model_type": family, "vocab_size": 200, "num_hidden_layers": 2, "hidden_size": 16}
    config |= {
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "d_model": 16,
        "num_layers": 2,
        "num_heads": 2,
    }
    config |= {"embedding_size": 16, "d_kv": 8, "d_ff": 32}
    with pytest.raises(SettingError, match=f"{family}.*use one like BERT"):
        Encoder.build(config, tiny_tokenizer().to_str(), 0)


# Frozen layers --------------------------------------------------------------------------------------------


@every_family
@every_pooling
@pytest.mark.parametrize("n_layers", [1, 2])
def test_the_cached_way_is_the_uncached_way(family, pooling, n_layers):
    found = []
    for cached in (False, True):
        encoder = tiny(family)
        encoder.freeze(n_layers)
        ids, real = batch(encoder)
        lower = encoder.lower(ids, real)
        assert lower.shape == (*ids.shape, 16)
        assert not lower.requires_grad
        features = encoder.features(ids, real, ((2,), (3,)), pooling, lower if cached else None)
        sum(one.pow(2).sum() for one in features).backward()
        found.append((features, {name: p.grad for name, p in encoder.model.named_parameters()}))
    (features, gradients), (cached_features, cached_gradients) = found
    assert_close(cached_features, features)
    learnt = {name for name, gradient in gradients.items() if gradient is not None}
    assert learnt == {name for name, gradient in cached_gradients.items() if gradient is not None}
    assert learnt and all(f".{k}." not in name for k in range(n_layers) for name in learnt)
    assert not any("embedding" in name for name in learnt)
    assert_close([cached_gradients[name] for name in learnt], [gradients[name] for name in learnt], atol=1e-4)


@every_family
def test_the_frozen_layers_are_not_run_on_what_is_given(family):
    encoder = tiny(family)
    encoder.freeze(2)
    ids, real = batch(encoder)
    lower = encoder.lower(ids, real)
    before = encoder.features(ids, real, ((2,), (3,)), lower=lower)
    with torch.no_grad():
        for layer in encoder._layers[:2]:
            for parameter in layer.parameters():
                parameter.fill_(torch.nan)
    assert_close(encoder.features(ids, real, ((2,), (3,)), lower=lower), before, atol=0, rtol=0)


@every_family
def test_all_layers_may_be_frozen(family):
    encoder = tiny(family)
    encoder.freeze(3)
    ids, real = batch(encoder)
    lower = encoder.lower(ids, real)
    for pooling in POOLINGS:
        assert_close(
            encoder.features(ids, real, ((3,),), pooling, lower),
            encoder.features(ids, real, ((3,),), pooling),
        )


@every_family
def test_freezing_none_trains_all(family):
    encoder = tiny(family)
    encoder.freeze(2)
    assert not all(p.requires_grad for p in encoder.model.parameters())
    encoder.freeze(0)
    assert all(p.requires_grad for p in encoder.model.parameters())


def test_lower_knows_no_dropout_and_leaves_training_on():
    encoder = tiny("bert")
    encoder.freeze(2)
    ids, real = batch(encoder)
    calm = encoder.lower(ids, real)
    encoder.model.train()
    torch.testing.assert_close(encoder.lower(ids, real), calm, atol=0, rtol=0)
    assert all(module.training for module in encoder.model.modules())


def test_what_was_not_frozen_cannot_be_cached():
    encoder = tiny("bert")
    ids, real = batch(encoder)
    with pytest.raises(SettingError, match="call freeze"):
        encoder.lower(ids, real)
    encoder.freeze(2)
    with pytest.raises(SettingError, match="freeze at most 1"):
        encoder.features(ids, real, ((1,), (3,)), lower=encoder.lower(ids, real))
    with pytest.raises(SettingError, match="use 0 to 3"):
        encoder.freeze(4)


# Cut ------------------------------------------------------------------------------------------------------


@every_family
@every_pooling
def test_cut_is_uncut(family, pooling):
    whole, cut = tiny(family, layers=4), tiny(family, layers=4)
    ids, real = batch(whole)
    reads = ((1,), (1, 2))
    cut.cut(reads)
    again = Encoder.restore(*cut.state())
    assert (whole.n_layers, cut.n_layers, again.n_layers) == (4, 2, 2)
    assert len(cut.state()[0]) < len(whole.state()[0])
    with torch.no_grad():
        wanted = whole.features(ids, real, reads, pooling)
        assert_close(cut.features(ids, real, reads, pooling), wanted)
        assert_close(again.features(ids, real, reads, pooling), wanted)
        assert_close(cut.features(ids, real, reads, pooling), witness(whole, ids, real, reads, pooling))


@every_family
def test_cut_and_freeze_go_together(family):
    encoder = tiny(family, layers=4)
    ids, real = batch(encoder)
    encoder.freeze(3)
    wanted = encoder.features(ids, real, ((2,),))
    encoder.cut(((2,),))
    assert encoder.n_frozen == 2
    assert_close(encoder.features(ids, real, ((2,),), lower=encoder.lower(ids, real)), wanted)


def test_at_least_one_layer_stays():
    encoder = tiny("bert")
    ids, real = batch(encoder)
    wanted = encoder.features(ids, real, ((0,),))
    encoder.cut(((0,),))
    assert encoder.n_layers == 1
    assert_close(encoder.features(ids, real, ((0,),)), wanted)


# Dropout --------------------------------------------------------------------------------------------------


@every_family
@every_pooling
def test_dropout_can_be_switched_off_and_on(family, pooling):
    encoder = tiny(family)
    ids, real = batch(encoder)
    with torch.no_grad():
        calm = encoder.features(ids, real, READS, pooling)
        encoder.set_dropout(0.0)
        encoder.model.train()
        assert_close(encoder.features(ids, real, READS, pooling), calm)
        encoder.set_dropout(0.5)
        first, second = (encoder.features(ids, real, ((3,),), pooling)[0] for _ in range(2))
        assert (first - second).abs().max() > 0.01
        encoder.model.eval()
        assert_close(encoder.features(ids, real, READS, pooling), calm)


@every_family
def test_dropout_reaches_attention_and_is_kept(family):
    encoder = tiny(family)
    encoder.set_dropout(0.25)
    for one in (encoder, Encoder.restore(*encoder.state())):
        dropouts = [module for module in one.model.modules() if isinstance(module, torch.nn.Dropout)]
        assert len(dropouts) > 2 * one.n_layers
        assert {module.p for module in dropouts} == {0.25}
        rates = {v for k, v in one.state()[2].items() if "dropout" in k and v is not None}
        assert rates == {0.25}
    if family == "modernbert":
        assert {layer.attn.attention_dropout for layer in encoder.model.layers} == {0.25}


def test_dropout_out_of_range():
    with pytest.raises(SettingError, match="dropout is 1"):
        tiny("bert").set_dropout(1)
