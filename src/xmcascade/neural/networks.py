"""Small networks over token embeddings, in an encoder's place: XML-CNN's and AttentionXML's.

The embeddings start as those of a pre-trained encoder, whose tokenizer is used; the rest starts at random.

Shapes: B documents of T tokens, D numbers a token, F filters a window.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from xmcascade.errors import SettingError
from xmcascade.neural import extra, pretrained
from xmcascade.neural.encoder import NO_LIMIT, Arrays, Encoder, Pooling

__all__ = ["NETWORKS", "ConvNetwork", "LstmNetwork", "Network"]


LANES = 8  # the sums of softmax over other numbers of tokens depend on threads


class Network:
    """Token embeddings and modules that make features of them; to its users it is like an Encoder.

    >>> sorted(NETWORKS)
    ['attention-xml', 'xml-cnn']
    """

    kind: ClassVar[str]
    n_layers, n_frozen, left, max_tokens = 1, 0, False, NO_LIMIT

    def __init__(self, model: Any, tokenizer: Any, config: Mapping[str, Any]) -> None:
        """Modules by name as `modules` makes them, with these sizes."""
        self.model, self.tokenizer, self.config = model.eval(), tokenizer, dict(config)
        self.pad = int(config["pad"])

    @classmethod
    def over(cls, encoder: Encoder, seed: int, **sizes: int) -> Self:
        """Over the token embeddings of an encoder."""
        torch, weights = extra.torch(), encoder.embeddings.weight.detach()
        n_tokens, depth = weights.shape
        config = {"model_type": cls.kind, "tokens": n_tokens, "depth": depth, "pad": encoder.pad, **sizes}
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            model = cls.modules(config)
        with torch.no_grad():
            model["tokens"].weight.copy_(weights)
        return cls(model, encoder.tokenizer, config)

    @classmethod
    def modules(cls, config: Mapping[str, Any]) -> Any:
        """Modules of these sizes, with random weights."""
        raise NotImplementedError

    @property
    def width(self) -> int:
        """Features."""
        return int(self.config["hidden"])

    @property
    def embeddings(self) -> Any:
        """The module of the token embeddings."""
        return self.model["tokens"]

    @property
    def device(self) -> Any:
        """Where it is."""
        return self.embeddings.weight.device

    def activations(self, n_tokens: int) -> int:
        """Numbers that a document of so many tokens leaves for the backward pass."""
        raise NotImplementedError

    def features(
        self,
        ids: Any,
        real: Any,
        reads: Sequence[Sequence[int]],
        pooling: Pooling = "mean",
        lower: Any = None,
    ) -> list[Any]:
        """The same features for every level."""
        return [self._read(self._embedded(ids, real), real)] * len(reads)

    def contributions(self, ids: Any, real: Any, rows: Any) -> Any:
        """What each token of one document, [1, T], adds to the products of its features and rows: [E, T].

        Gradient times input: where a network is made of straight pieces, as XML-CNN's, only what it has of
        biases is missing from their sum.
        """
        torch = extra.torch()
        with torch.enable_grad():
            tokens = self._embedded(ids, real).detach().requires_grad_()
            products = rows @ self._read(tokens, real)[0]
            slopes = [torch.autograd.grad(own, tokens, retain_graph=True)[0][0] for own in products]
        return (torch.stack(slopes) * tokens.detach()).sum(2)

    def _read(self, tokens: Any, real: Any) -> Any:
        """From embedded tokens, [B, T, D]."""
        raise NotImplementedError

    def cut(self, reads: Sequence[Sequence[int]]) -> None:
        """Nothing: there is one layer."""

    def freeze(self, n_layers: int) -> None:
        """Only 0: there is nothing that could stay as it is."""
        if n_layers:
            raise SettingError(f"{n_layers} frozen layers", remedy=f"use 0: {self.kind} has none")

    def set_dropout(self, p: float) -> None:
        """Drop this share of the token embeddings' values in training."""
        self.model["dropout"].p = p

    def state(self) -> tuple[Arrays, str, dict[str, Any]]:
        """As Encoder.state."""
        arrays = {name: tensor.cpu().numpy() for name, tensor in self.model.state_dict().items()}
        return arrays, self.tokenizer.to_str(), self.config

    @classmethod
    def restore(
        cls, arrays: Mapping[str, npt.NDArray[Any]], tokenizer_json: str, config: Mapping[str, Any]
    ) -> Self:
        """The opposite; arrays are copied. Raises ValueError when they do not fit."""
        torch = extra.torch()
        try:
            with torch.device("meta"):  # sizes are compared before anything is allocated
                made = cls.modules(config).state_dict()
        except RuntimeError as error:
            raise ValueError(f"sizes of {config!s:.200}: {error!s:.100}") from error
        shapes = {name: tuple(tensor.shape) for name, tensor in made.items()}
        given = {name: array.shape for name, array in arrays.items()}
        if shapes != given or not 0 <= int(config["pad"]) < int(config["tokens"]):
            raise ValueError(f"arrays of {given!s:.200}, not {shapes!s:.200}")
        model = cls.modules(config)
        for name, tensor in model.state_dict().items():
            tensor.copy_(torch.from_numpy(np.array(arrays[name], np.float32)))
        return cls(model, pretrained.tokenizer_of(tokenizer_json), config)

    def _embedded(self, ids: Any, real: Any) -> Any:
        """[B, T, D]; zeros for padding."""
        return self.model["dropout"](self.model["tokens"](ids)) * real[:, :, None]


class ConvNetwork(Network):
    """Filters over windows of tokens, the strongest answer of each in every part of the text, a bottleneck.

    (XML-CNN, Liu et al., 2017.)

    >>> network = ConvNetwork.over(Encoder.load("minilm"), seed=0, hidden=16, filters=4)
    >>> ids = extra.torch().tensor([[101, 4937, 102]])
    >>> network.features(ids, ids > 0, ((1,),))[0].shape
    torch.Size([1, 16])
    """

    kind = "xml-cnn"
    WINDOWS, PARTS = (2, 4, 8), 8

    @classmethod
    def modules(cls, config: Mapping[str, Any]) -> Any:
        """Embedding, filters for each window, and the bottleneck."""
        nn, depth, filters = extra.torch().nn, int(config["depth"]), int(config["filters"])
        n_pooled = len(cls.WINDOWS) * filters * cls.PARTS
        return nn.ModuleDict(
            {
                "tokens": nn.Embedding(int(config["tokens"]), depth),
                "dropout": nn.Dropout(0.0),
                # As products of matrices: the sums of a convolution's own backward depend on threads.
                **{f"window{size}": nn.Linear(size * depth, filters) for size in cls.WINDOWS},
                "hidden": nn.Linear(n_pooled, int(config["hidden"])),
            }
        )

    def activations(self, n_tokens: int) -> int:
        """Numbers that a document of so many tokens leaves for the backward pass."""
        filters = len(self.WINDOWS) * int(self.config["filters"])
        return (
            n_tokens * ((3 + sum(self.WINDOWS)) * int(self.config["depth"]) + 3 * filters)
            + self.PARTS * filters
            + 2 * self.width
        )

    def _read(self, tokens: Any, real: Any) -> Any:
        torch = extra.torch()
        sizes = real.sum(1, keepdim=True).clamp(min=1)
        # A token's part depends on its own document's length: padding changes nothing.
        parts = torch.arange(real.shape[1], device=real.device) * self.PARTS // sizes
        parts = parts.clamp(max=self.PARTS - 1)[:, None]
        pooled = []
        for size in self.WINDOWS:
            windows = torch.nn.functional.pad(tokens, (0, 0, 0, size - 1)).unfold(1, size, 1).flatten(2)
            found = torch.relu(self.model[f"window{size}"](windows)) * real[:, :, None]
            found = found.transpose(1, 2)
            none = found.new_zeros(*found.shape[:2], self.PARTS)
            pooled.append(none.scatter_reduce(2, parts.expand_as(found), found, "amax").flatten(1))
        return torch.relu(self.model["hidden"](torch.cat(pooled, 1))).float()


class LstmNetwork(Network):
    """Tokens in their context, read in both directions, [B, T, width]; zeros for padding (AttentionXML).

    The layers that make a label's score of what it attends to are here too: all labels share them.

    >>> network = LstmNetwork.over(Encoder.load("minilm"), seed=0, hidden=16, shared=4)
    >>> ids = extra.torch().tensor([[101, 4937, 102]])
    >>> network.features(ids, ids > 0, ((1,),))[0].shape
    torch.Size([1, 3, 16])
    """

    kind = "attention-xml"

    @classmethod
    def modules(cls, config: Mapping[str, Any]) -> Any:
        """Embedding, an LSTM for each direction, and the layers that labels share."""
        nn, hidden = extra.torch().nn, int(config["hidden"])
        one_way = partial(nn.LSTM, int(config["depth"]), hidden // 2, batch_first=True)
        return nn.ModuleDict(
            {
                "tokens": nn.Embedding(int(config["tokens"]), int(config["depth"])),
                "dropout": nn.Dropout(0.0),
                "ahead": one_way(),
                "back": one_way(),
                "shared": nn.Linear(hidden, int(config["shared"])),
                "score": nn.Linear(int(config["shared"]), 1),
            }
        )

    def activations(self, n_tokens: int) -> int:
        """Numbers that a document of so many tokens leaves for the backward pass."""
        return n_tokens * (3 * int(self.config["depth"]) + 8 * self.width)

    def _read(self, tokens: Any, real: Any) -> Any:
        torch = extra.torch()
        places = torch.arange(real.shape[1], device=real.device)
        # Each document's own tokens from the last to the first; padding stays at the end.
        turned = torch.where(real, real.sum(1, keepdim=True) - 1 - places, places)[:, :, None]
        with _plain:
            ahead, _ = self.model["ahead"](tokens)
            back, _ = self.model["back"](tokens.gather(1, turned.expand_as(tokens)))
        return torch.cat([ahead, back.gather(1, turned.expand_as(back))], 2) * real[:, :, None]

    def attend(self, states: Any, queries: Any) -> Any:
        """Scores [B, E] of labels with these queries [B, E, width]: each attends to tokens in its own way."""
        torch = extra.torch()
        states = torch.nn.functional.pad(states, (0, 0, 0, -states.shape[1] % LANES))
        context = self.attention(states, queries) @ states
        return self.model["score"](torch.relu(self.model["shared"](context)))[:, :, 0]

    def attention(self, states: Any, queries: Any) -> Any:
        """How much of each token they take, [B, E, T]; all of it adds up to 1."""
        likeness = (queries @ states.transpose(1, 2)).masked_fill(~states.any(2)[:, None], -1e9)
        return extra.torch().softmax(likeness, 2)


class _Plain:
    """Meanwhile torch does without oneDNN, whose LSTM adds up by thread; torch's own switch warns.

    The switch is the process's: the last of several threads that are inside turns it back.
    """

    def __init__(self) -> None:
        self.lock, self.inside, self.before = threading.Lock(), 0, True

    def __enter__(self) -> None:
        core = extra.torch()._C
        with self.lock:
            if not self.inside:
                self.before = core._get_mkldnn_enabled()
                core._set_mkldnn_enabled(False)
            self.inside += 1

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.inside -= 1
            if not self.inside:
                extra.torch()._C._set_mkldnn_enabled(self.before)


_plain = _Plain()


NETWORKS: dict[str, type[Network]] = {each.kind: each for each in (ConvNetwork, LstmNetwork)}
