"""What goes on in an encoder's layers during one pass: which are run, on what, and what is kept of them.

Objects here stand where the forward of a layer or norm stood, so that any family's own code runs around them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from xmcascade.neural import extra

__all__ = ["BERT_LIKE", "LEAST_TOKENS", "Groups", "Layer", "Norm", "Pass", "current", "parts_of"]

BERT_LIKE = {"bert", "roberta", "xlm-roberta", "camembert", "electra"}  # layers of the same parts as BERT's
LEAST_TOKENS = 8  # products of fewer rows round otherwise: answers would depend on the batch

Groups = Sequence[tuple[int, int]]  # two or more: so many documents of so many tokens


@dataclass
class Pass:
    """One pass of a batch through the encoder."""

    last: int
    """No layer above is computed."""
    few: bool = False
    """Of the last layer, only the summary token is wanted, which is the first."""
    given: Any = None
    """What the lowest layers would return; these are then not computed."""
    n_given: int = 0
    states: list[Any] = field(default_factory=list)
    """Hidden states as the family shapes them: of the embeddings, of layer 1, and so on."""
    plain: bool = False
    """Every layer runs as its family wrote it."""
    groups: Groups = ()
    """Of documents that are packed into one row: how many have how many tokens, and then how many, ..."""


current: ContextVar[Pass | None] = ContextVar("current", default=None)  # each thread has its own


class Layer:
    """Stands where a layer's forward stood: notes what comes out, and skips what this pass does not need."""

    def __init__(self, layer: Any, number: int, family: str) -> None:
        self.layer, self.number, self.inner = layer, number, layer.forward
        self.like_bert = family in BERT_LIKE
        self.n_beside = -1  # values a family returns beside the hidden states; -1: it returns no tuple

    def __call__(self, hidden: Any, *args: Any, **kwargs: Any) -> Any:
        """What the family's forward would return, with None for what is beside the hidden states."""
        now = current.get()
        if now is None:
            return self.inner(hidden, *args, **kwargs)
        if self.number == 1:
            now.states.append(hidden)
        if self.number == now.n_given:
            hidden = now.given
        elif now.n_given < self.number <= now.last:
            if now.plain:
                found = self.inner(hidden, *args, **kwargs)
                now.states.append(found[0] if isinstance(found, tuple) else found)
                return found
            if self.like_bert:
                few = now.few and self.number == now.last and not now.groups
                hidden = _bert_layer(self.layer, hidden, few, now.groups, *args, **kwargs)
            else:
                found = self.inner(hidden, *args, **kwargs)
                self.n_beside = len(found) - 1 if isinstance(found, tuple) else -1
                hidden = found[0] if isinstance(found, tuple) else found
        now.states.append(hidden)
        return hidden if self.n_beside < 0 else (hidden, *[None] * self.n_beside)


class Norm:
    """Stands where a LayerNorm's forward stood, and gives the same.

    torch's own backward adds up by thread: the number of threads would change what is learnt.
    """

    def __init__(self, norm: Any) -> None:
        self.norm = norm

    def __call__(self, hidden: Any) -> Any:
        """Hidden states, normalised."""
        norm, torch = self.norm, extra.torch()
        if not torch.is_grad_enabled():
            return torch.layer_norm(hidden, norm.normalized_shape, norm.weight, norm.bias, norm.eps)
        plain = torch.layer_norm(hidden, norm.normalized_shape, None, None, norm.eps)
        if norm.weight is not None:
            plain = plain * norm.weight
        return plain if norm.bias is None else plain + norm.bias


def _bert_layer(
    layer: Any, hidden: Any, few: bool, groups: Groups, attention_mask: Any = None, *_: Any, **__: Any
) -> Any:
    """A BERT-like layer's output, [B, T, width], or with `few` for the first LEAST_TOKENS of them.

    The family's own forward gives the same; a good part of its time for one short document is no arithmetic.
    Packed documents, [1, N, width], go through it together; only attention takes them a group at a time.
    """
    own = layer.attention.self
    dropout = own.dropout.p if own.training else 0.0
    queries, keys, values = (parts_of(of(hidden), groups) for of in (own.query, own.key, own.value))
    parts = zip(queries, keys, values, strict=True)
    mixed = _joined([_mixed(own, *part, attention_mask, dropout) for part in parts])
    if few:  # in one piece: torch rounds otherwise what lies apart
        mixed, hidden = mixed[:, :LEAST_TOKENS].contiguous(), hidden[:, :LEAST_TOKENS]
    attended = layer.attention.output(mixed, hidden)
    return layer.output(layer.intermediate(attended), attended)


def parts_of(packed: Any, groups: Groups) -> list[Any]:
    """For each group [B, T, width] of its documents; all of them, where they are not packed."""
    if not groups:
        return [packed]
    parts = packed[0].split([n_docs * n_tokens for n_docs, n_tokens in groups])
    return [part.unflatten(0, group) for part, group in zip(parts, groups, strict=True)]


def _joined(parts: list[Any]) -> Any:
    """Undoes `parts_of`."""
    return parts[0] if len(parts) == 1 else extra.torch().cat([part.flatten(0, 1) for part in parts])[None]


def _mixed(own: Any, query: Any, key: Any, value: Any, mask: Any, dropout: float) -> Any:
    """What tokens take from one another, [B, T, width]."""

    def heads(values: Any) -> Any:
        shape = own.num_attention_heads, own.attention_head_size
        return values.reshape(values.shape[0], -1, *shape).transpose(1, 2)

    found = _attend(heads(query), heads(key), heads(value), mask, dropout).transpose(1, 2)
    return found.reshape(query.shape[0], -1, own.all_head_size)


def _attend(query: Any, key: Any, value: Any, mask: Any, dropout: float) -> Any:
    """Scaled dot product attention; on a CPU its backward pass is eight times slower in bfloat16."""
    torch = extra.torch()
    attend = torch.nn.functional.scaled_dot_product_attention
    if query.dtype != torch.bfloat16 or query.device.type != "cpu":
        return attend(query, key, value, mask, dropout)
    with torch.autocast("cpu", enabled=False):
        return attend(query.float(), key.float(), value.float(), mask, dropout)
