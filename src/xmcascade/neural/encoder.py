"""A pre-trained text encoder of any family, read at several encoder layers in one pass.

What is read at layer k is what the encoder would return were k its last layer, so what nothing reads need not
be computed. Layers are found and tried when an encoder is made: a family that works otherwise is refused.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from xmcascade.errors import SettingError
from xmcascade.neural import extra, pretrained
from xmcascade.neural.layers import BERT_LIKE, Groups, Layer, Norm, Pass, current, parts_of

if TYPE_CHECKING:
    import tokenizers
    import torch

__all__ = ["Encoder", "Pooling"]

NO_LIMIT = 1 << 20  # tokens, for families with relative positions
ACTIVATIONS = 34  # numbers a token and layer, in widths, that the backward pass needs (measured: BERT)
ATTENTION = 3  # beside, for each pair of tokens, layer and attention head
NOT_KEPT = {"transformers_version", "id2label", "label2id"}

Pooling = Literal["cls", "mean"]
Arrays = dict[str, npt.NDArray[Any]]


class Encoder:
    """A Hugging Face encoder and its tokenizer.

    >>> from tokenizers import Tokenizer, models
    >>> config = {"model_type": "bert", "vocab_size": 3, "hidden_size": 4, "num_hidden_layers": 2,
    ...           "num_attention_heads": 2, "intermediate_size": 8}
    >>> words = Tokenizer(models.WordLevel({"[PAD]": 0, "cat": 1, "dog": 2}, unk_token="[PAD]"))
    >>> encoder = Encoder.build(config, words.to_str(), seed=0)
    >>> encoder.family, encoder.n_layers, encoder.width, encoder.max_tokens, encoder.pad
    ('bert', 2, 4, 512, 0)
    >>> ids = extra.torch().tensor([[1, 2]])
    >>> coarse, fine = encoder.features(ids, ids > 0, reads=((1, 2), (2,)), pooling="cls")
    >>> coarse.shape, fine.shape
    (torch.Size([1, 8]), torch.Size([1, 4]))
    """

    def __init__(self, model: Any, tokenizer: tokenizers.Tokenizer) -> None:
        config = model.config
        config.output_hidden_states = config.output_attentions = False
        self.model = model.eval()
        for module in model.modules():
            if isinstance(module, extra.torch().nn.LayerNorm):
                module.forward = Norm(module)
        self.tokenizer = tokenizer
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self.family: str = config.model_type
        self.left = self.family == "xlnet"
        """Whether padding goes to the left, and the summary token is the last."""
        self.width: int = getattr(config, "hidden_size", 0)
        if getattr(config, "pad_token_id", None) is None:
            config.pad_token_id = tokenizer.token_to_id("[PAD]") or tokenizer.token_to_id("<pad>") or 0
        self.pad: int = config.pad_token_id
        self.n_frozen = 0
        """The lowest layers that are not trained; `freeze` sets it."""
        self.packs = self.family in BERT_LIKE
        """Whether it has `packed`."""
        self._first, self.max_tokens = _positions(model)
        self._find_layers()
        n_known, n_rows = tokenizer.get_vocab_size(), model.get_input_embeddings().num_embeddings
        if max(n_known, self.pad + 1) > n_rows:
            what = f"the tokenizer knows {n_known:,} tokens and the encoder {n_rows:,}"
            raise SettingError(what, remedy="use the tokenizer that the encoder was trained with")

    def _find_layers(self) -> None:
        """Find the layers, and learn on two documents of three tokens how they pass hidden states on."""
        torch, model = extra.torch(), self.model
        if hasattr(model, "pooler"):
            model.pooler = None  # nothing reads it
        try:
            n_tokens = model.get_input_embeddings().num_embeddings
            ids = torch.arange(6, device=model.device).reshape(2, 3) % n_tokens
            lists = [
                (m, c) for m in model.modules() for c in m.children() if isinstance(c, torch.nn.ModuleList)
            ]
            n_layers = model.config.num_hidden_layers
            owner, self._layers = next(pair for pair in lists if len(pair[1]) == n_layers)
            for number, layer in enumerate(self._layers, 1):
                layer.forward = Layer(layer, number, self.family)
            now = Pass(last=n_layers)
            with torch.no_grad():
                returned = self._run(now, ids, ids >= 0).last_hidden_state
                self._time_first = now.states[0].shape == (3, 2, self.width)
                states = [self._batch_first(state) for state in now.states]
                if len(states) != n_layers + 1 or any(state.shape != (2, 3, self.width) for state in states):
                    raise ValueError("its layers do not each give a vector a token")
                # Families that normalise first have one more norm after the last layer.
                norms = [torch.nn.Identity(), *(m for m in owner.children() if "Norm" in type(m).__name__)]
                self._norm = next(n for n in norms if torch.allclose(n(states[-1]), returned, equal_nan=True))
        except Exception as error:
            what = f"encoders of the family {self.family!r} cannot be read ({type(error).__name__}: {error})"
            remedy = "use one like BERT, RoBERTa, DistilBERT, ModernBERT, MPNet or XLNet"
            raise SettingError(what, remedy=remedy) from error

    # Where encoders come from -----------------------------------------------------------------------------

    @classmethod
    def load(cls, name: str | Path = pretrained.EMBEDDED, fetch: bool = True) -> Encoder:
        """An encoder by name: "minilm" (embedded), a folder, or a name on the Hugging Face hub.

        A folder holds config.json, model.safetensors and tokenizer.json. Without `fetch`, nothing comes over
        the network.
        """
        return cls(*pretrained.load(name, fetch))

    @classmethod
    def build(cls, config: Mapping[str, Any], tokenizer_json: str, seed: int) -> Encoder:
        """An encoder with random weights, from a transformers config with its model_type."""
        model = pretrained.made(pretrained.config_of(config), seed)
        return cls(model, pretrained.tokenizer_of(tokenizer_json))

    def state(self) -> tuple[Arrays, str, dict[str, Any]]:
        """Arrays (sharing the encoder's memory), tokenizer and config to store; `restore` takes them back."""
        arrays = {name: tensor.cpu().numpy() for name, tensor in self.model.state_dict().items()}
        config = pretrained.taken(json.loads(self.model.config.to_json_string(use_diff=False)))
        return arrays, self.tokenizer.to_str(), {k: v for k, v in config.items() if k not in NOT_KEPT}

    @classmethod
    def restore(
        cls, arrays: Mapping[str, npt.NDArray[Any]], tokenizer_json: str, config: Mapping[str, Any]
    ) -> Encoder:
        """The encoder that `state` described; arrays are copied. Raises ValueError when they do not fit."""
        torch = extra.torch()
        known = pretrained.config_of(config)
        if known.num_hidden_layers > len(arrays):
            raise ValueError(f"{known.num_hidden_layers} encoder layers and only {len(arrays)} arrays")
        with torch.device("meta"):  # sizes are compared before anything is allocated
            shapes = _weights(pretrained.made(known))
        if differ := sorted(shapes.keys() ^ arrays.keys()):
            raise ValueError(f"array {differ[0]!r} is {'missing' if differ[0] in shapes else 'unknown'}")
        for name, tensor in shapes.items():
            if arrays[name].shape != tensor.shape:
                raise ValueError(f"array {name!r} is {arrays[name].shape}, not {tuple(tensor.shape)}")
        model = pretrained.made(known)
        for name, tensor in _weights(model).items():
            tensor.copy_(torch.from_numpy(np.array(arrays[name], tensor.numpy().dtype)))
        return cls(model, pretrained.tokenizer_of(tokenizer_json))

    # What is read -----------------------------------------------------------------------------------------

    @property
    def n_layers(self) -> int:
        """Encoder layers."""
        return len(self._layers)

    @property
    def embeddings(self) -> Any:
        """The module of the token embeddings."""
        return self.model.get_input_embeddings()

    @property
    def device(self) -> Any:
        """Where it is."""
        return self.model.device

    def activations(self, n_tokens: int) -> int:
        """Numbers that a document of so many tokens leaves for the backward pass."""
        attention = ATTENTION * getattr(self.model.config, "num_attention_heads", 12) * n_tokens
        a_token = ACTIVATIONS * self.width + attention
        return n_tokens * max(self.n_layers - self.n_frozen, 1) * a_token

    def features(
        self,
        ids: torch.Tensor,
        real: torch.Tensor,
        reads: Sequence[Sequence[int]],
        pooling: Pooling = "cls",
        lower: torch.Tensor | None = None,
    ) -> list[torch.Tensor]:
        """For each level float32 features [B, width of the layers it reads], side by side; gradients flow.

        ids [B, T] are token ids, real [B, T] says which are not padding. reads: for each level the encoder
        layers it reads, counted from 1 (0: the embeddings). pooling: "cls": the summary token, "mean": the
        mean of all real tokens. lower: what `lower` returned for these; only the layers above are then run.
        """
        return self._read(ids, real, reads, pooling, lower)

    def packed(
        self,
        ids: torch.Tensor,
        lengths: Sequence[int],
        reads: Sequence[Sequence[int]],
        pooling: Pooling = "cls",
    ) -> list[torch.Tensor]:
        """As `features`, of documents of so many tokens, in order of length, one after another in ids [N].

        There is no padding, and what is done to each token alone is done to all at once.
        """
        groups = tuple((n_docs, n_tokens) for n_tokens, n_docs in Counter(lengths).items())
        ids = ids.reshape(groups[0] if len(groups) == 1 else (1, len(ids)))
        real = extra.torch().ones_like(ids, dtype=extra.torch().bool)
        return self._read(ids, real, reads, pooling, groups=groups if len(groups) > 1 else ())

    def _read(
        self, ids: Any, real: Any, reads: Any, pooling: Pooling, lower: Any = None, groups: Groups = ()
    ) -> list[Any]:
        n_given = 0 if lower is None else self._frozen()
        last = self._highest(reads)
        if pooling not in ("cls", "mean"):
            raise SettingError(f"pooling is {pooling!r}", remedy='use "cls" or "mean"')
        if (lowest := min(map(min, reads))) < n_given:
            what = f"a level reads encoder layer {lowest}, below the output of layer {n_given} that is given"
            raise SettingError(what, remedy=f"freeze at most {lowest} layers, or read higher ones")
        given = None if lower is None else self._batch_first(lower)
        now = Pass(last, pooling == "cls", given, n_given, groups=groups)
        self._run(now, ids, real)
        shares = None
        if pooling == "mean":
            parts = parts_of(real[:, :, None], groups)
            shares = [part.float() / part.sum(1, keepdim=True).clamp(min=1) for part in parts]
        pooled = {k: self._pooled(now.states[k], groups, shares) for layers in reads for k in layers}
        return [
            pooled[layers[0]] if len(layers) == 1 else extra.torch().cat([pooled[k] for k in layers], 1)
            for layers in reads
        ]

    def look(
        self, ids: torch.Tensor, real: torch.Tensor, reads: Sequence[Sequence[int]]
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """What `features` has before pooling, and how tokens attend to one another; without gradients.

        For each level the features of every token, [B, T, width of the layers it reads]; and for each encoder
        layer what each token takes from the others, [B, heads, T, T], where a token's row adds up to 1 (no
        layer, where a family does not tell).
        """
        self._highest(reads)
        torch, now = extra.torch(), Pass(self.n_layers, plain=True)
        # A copy that shares the weights, since others may be predicting: only plain attention can be read.
        shared = {id(own): own for own in (*self.model.parameters(), *self.model.buffers())}
        model = deepcopy(self.model, shared).eval()
        model.set_attn_implementation("eager")
        with torch.inference_mode():
            attention = self._run(now, ids, real, model, output_attentions=True).attentions
            states = [self._norm(self._batch_first(state)).float() for state in now.states]
            return [torch.cat([states[k] for k in layers], 2) for layers in reads], list(attention or ())

    def lower(self, ids: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        """Output [B, T, width] of the frozen layers, without dropout: compute once, give to `features`."""
        now, training = Pass(self._frozen()), self.model.training
        self.model.eval()
        try:
            with extra.torch().no_grad():
                self._run(now, ids, real)
        finally:
            self.model.train(training)
        return self._batch_first(now.states[self.n_frozen]).contiguous()

    def cut(self, reads: Sequence[Sequence[int]]) -> None:
        """Drop the layers above the highest that is read, for good: they are neither kept nor saved."""
        config, n_layers = self.model.config, max(1, self._highest(reads))
        del self._layers[n_layers:]
        config.num_hidden_layers = n_layers
        if getattr(config, "layer_types", None):
            config.layer_types = config.layer_types[:n_layers]
        self.freeze(min(self.n_frozen, n_layers))

    def freeze(self, n_layers: int) -> None:
        """Do not train the embeddings and the lowest layers; 0: train all."""
        if not 0 <= n_layers <= self.n_layers:
            raise SettingError(f"{n_layers} frozen layers", remedy=f"use 0 to {self.n_layers}")
        self.n_frozen = n_layers
        self.model.requires_grad_(n_layers == 0)
        # What all layers share (MPNet's position bias) stays frozen: the lower ones depend on it.
        for module in (*self._layers[n_layers:], self._norm):
            module.requires_grad_(True)

    def set_dropout(self, p: float) -> None:
        """Drop this share of values in training, wherever the family drops any."""
        if not 0 <= p < 1:
            raise SettingError(f"dropout is {p}", remedy="use 0 or more, below 1")
        nn, config = extra.torch().nn, self.model.config
        for module in self.model.modules():
            if isinstance(module, nn.Dropout):
                module.p = p
            for name, child in list(module.named_children()):
                if "drop" in name and isinstance(child, nn.Identity):  # ModernBERT, where it was 0
                    setattr(module, name, nn.Dropout(p).train(module.training))
        for holder in (config, *self.model.modules()):  # attention has it as a number
            for name, value in list(vars(holder).items()):
                if "dropout" in name and type(value) in (int, float):
                    setattr(holder, name, float(p))

    def _highest(self, reads: Sequence[Sequence[int]]) -> int:
        if not reads or not all(reads):
            raise SettingError("a level reads no encoder layer", remedy="give each level one layer or more")
        every = [k for layers in reads for k in layers]
        if not 0 <= min(every) <= max(every) <= self.n_layers:
            what = f"encoder layers {min(every)} to {max(every)} are read"
            raise SettingError(what, remedy=f"use 1 to {self.n_layers}, or 0 for the embeddings")
        return max(every)

    def _frozen(self) -> int:
        if not self.n_frozen:
            raise SettingError("no encoder layer is frozen", remedy="call freeze(n_layers) first")
        return self.n_frozen

    def _run(self, now: Pass, ids: Any, real: Any, model: Any = None, **more: Any) -> Any:
        inputs = {"input_ids": ids, **more}
        if now.groups:
            torch = extra.torch()
            places = [
                torch.arange(self._first, self._first + n_tokens, device=ids.device).repeat(n_docs)
                for n_docs, n_tokens in now.groups
            ]
            inputs["position_ids"] = torch.cat(places)[None]
            inputs["token_type_ids"] = torch.zeros_like(ids)
        elif not real.all():
            inputs["attention_mask"] = real.long()
        if self.family == "xlnet":
            # As its tokenizer would have it: the summary token is a segment of its own.
            inputs["token_type_ids"] = kinds = extra.torch().zeros_like(ids)
            kinds[:, -1] = 2
            inputs["use_mems"] = False
        token = current.set(now)
        try:
            return (model or self.model)(**inputs)
        finally:
            current.reset(token)

    def _batch_first(self, state: Any) -> Any:
        """From or to the shape of XLNet's layers, [T, B, width]."""
        return state.transpose(0, 1) if self._time_first else state

    def _pooled(self, state: Any, groups: Groups, shares: Any) -> Any:
        """A vector for each document: by the tokens' shares, [B, T, 1] for each group; or the summary's."""
        parts = parts_of(self._batch_first(state), groups)
        if shares is None:
            found = [self._norm(part[:, -1 if self.left else 0]).float() for part in parts]
        else:
            found = [(self._norm(part).float() * own).sum(1) for part, own in zip(parts, shares, strict=True)]
        return found[0] if len(found) == 1 else extra.torch().cat(found)


def _weights(model: Any) -> dict[str, Any]:
    """A model's parameters and buffers, without the pooler that nothing reads."""
    return {name: tensor for name, tensor in model.state_dict().items() if not name.startswith("pooler.")}


def _positions(model: Any) -> tuple[int, int]:
    """The first of an encoder's positions, and the most tokens that it has positions for."""
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and hasattr(module, "num_embeddings"):
            # RoBERTa and its kin begin to count after the id of the padding.
            skipped = 0 if module.padding_idx is None else module.padding_idx + 1
            return skipped, int(module.num_embeddings) - skipped
    limit = getattr(model.config, "max_position_embeddings", None) or 0
    return 0, limit if limit > 0 else NO_LIMIT
