"""Encoders of every family, small enough for tests: random weights, and a tokenizer made on the spot."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from xmcascade.neural import Encoder, TokenStore, padded

TEXTS = [
    "the quick brown fox jumps over the lazy dog",
    "a dog barks",
    "foxes and dogs and cats",
    "cats sleep all day long in the warm sun while the quick mice dance on the table and sing",
]

# Special tokens in the order of their ids, and what surrounds a text.
BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"], "[CLS] $A [SEP]"
ROBERTA = ["<s>", "<pad>", "</s>", "<unk>"], "<s> $A </s>"
XLNET = ["<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>"], "$A <sep> <cls>"

FAMILIES = {
    "bert": BERT,
    "distilbert": BERT,
    "electra": BERT,
    "modernbert": BERT,
    "roberta": ROBERTA,
    "xlm-roberta": ROBERTA,
    "camembert": ROBERTA,
    "mpnet": ROBERTA,
    "xlnet": XLNET,
}


def tiny(family="bert", texts=TEXTS, layers=3, width=16, max_tokens=64, seed=0):
    """An encoder with random weights; "minilm" is a BERT of its own shape (many heads, no dropout)."""
    tokenizer = tiny_tokenizer(family, texts)
    return Encoder.build(tiny_config(family, tokenizer, layers, width, max_tokens), tokenizer.to_str(), seed)


def tiny_tokenizer(family="bert", texts=TEXTS, n_words=80):
    """The most frequent words, and letters for all others; a trained WordPiece differs from run to run."""
    special, template = FAMILIES["bert" if family == "minilm" else family]
    counts = Counter(word for text in texts for word in text.lower().split())
    letters = sorted(set("".join(counts)))
    words = sorted(counts, key=lambda word: (-counts[word], word))[:n_words]
    known = dict.fromkeys([*special, *letters, *(f"##{letter}" for letter in letters), *words])
    vocabulary = {token: number for number, token in enumerate(known)}
    unknown = next(token for token in special if "unk" in token.lower())
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=unknown))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(special)
    numbered = [(token, vocabulary[token]) for token in special]
    tokenizer.post_processor = processors.TemplateProcessing(single=template, special_tokens=numbered)
    return tokenizer


def tiny_config(family, tokenizer, layers=3, width=16, max_tokens=64):
    pad = tokenizer.token_to_id("[PAD]" if tokenizer.token_to_id("[PAD]") is not None else "<pad>")
    config = {"model_type": family, "vocab_size": tokenizer.get_vocab_size(), "pad_token_id": pad}
    # Large random weights: with the usual small ones all documents look alike.
    config["initializer_range"] = 0.3
    if family == "xlnet":
        return config | {"d_model": width, "n_layer": layers, "n_head": 2, "d_inner": 2 * width}
    if family == "distilbert":
        sizes = {"dim": width, "n_layers": layers, "n_heads": 2, "hidden_dim": 2 * width}
        return config | sizes | {"max_position_embeddings": max_tokens}
    kin = family in ("roberta", "xlm-roberta", "camembert", "mpnet")  # they do not use the first positions
    config |= {"hidden_size": width, "num_hidden_layers": layers, "intermediate_size": 2 * width}
    config |= {"num_attention_heads": 2, "max_position_embeddings": max_tokens + (pad + 1 if kin else 0)}
    if family == "modernbert":
        # A window far shorter than the texts: padding then sees nothing but padding.
        config |= {"local_attention": 4, "global_attn_every_n_layers": 2}
        config |= {"cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3}
    if family == "electra":
        config["embedding_size"] = width // 2
    if family == "minilm":
        config |= {"model_type": "bert", "num_attention_heads": 4}
        config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return config


def save_tiny(folder, family="bert", **shape):
    """Write a tiny encoder as `Encoder.load` reads it; returns the encoder."""
    encoder = tiny(family, **shape)
    arrays, tokenizer_json, config = encoder.state()
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(arrays, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "tokenizer.json").write_text(tokenizer_json, encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return encoder


def batch(encoder, texts=TEXTS):
    """Token ids and where they are real, as an encoder takes them."""
    store = TokenStore.of(texts, encoder.tokenizer, min(encoder.max_tokens, 512))
    return tuple(map(torch.from_numpy, padded(store, np.arange(len(texts)), encoder.pad, encoder.left)))


def assert_close(found, wanted, **tolerance):
    """Level by level the same features."""
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, **{"atol": 1e-5, "rtol": 1e-5} | tolerance)
