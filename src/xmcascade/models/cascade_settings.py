"""Settings of CascadeXML; and presets: Table 9 of its paper, exactly, and the ablations of Table 7.

The presets are for a machine with a GPU and the paper's corpora; where the paper is silent, its authors' code
decides. Everywhere else the derived values are the better start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from xmcascade.features import LabelFeatures
from xmcascade.linear import LinearSettings
from xmcascade.models.reading import EncoderSettings
from xmcascade.neural import RowOptimizer
from xmcascade.tree import TreeSettings

__all__ = ["PRESETS", "CascadeXMLSettings", "CascadeXMLTfidfSettings", "LightXMLSettings"]


@dataclass(frozen=True, kw_only=True)
class CascadeXMLSettings(EncoderSettings):
    """Settings of CascadeXML; what is None is derived, and said why in the log and in the model."""

    layers: tuple[tuple[int, ...], ...] | None = None
    """For each level the encoder layers it reads, from 1."""
    tree: TreeSettings = TreeSettings()  # noqa: RUF009 - it is frozen
    label_features: LabelFeatures = "pifa"
    shortlists: tuple[int, ...] | None = None
    """For each level of clusters, how many of them go on."""
    dropouts: tuple[float, ...] | None = None
    """Of each level's features."""
    rescale: bool = True
    """Whether levels weigh by the size of their shortlists."""
    propensity: bool = False
    """Whether rare labels weigh more where they are true, by their inverse propensity (PfastreXML)."""
    init: Literal["random", "documents", "texts", "both"] = "documents"
    """How rows start: small and random, or from the mean features of their documents, of their labels' own
    texts, or of both."""
    optimizer: RowOptimizer | None = None
    """Of the rows."""
    precision: Literal["float32", "bfloat16"] | None = None
    """Of the rows; when derived it is that of training, and a learnt model keeps bfloat16."""
    score: Literal["chosen", "last", "parent", "path"] = "chosen"
    """A label's score: its own level's, times its cluster's, or times all on the path; "chosen" on held-out
    documents."""
    background: int = 2000
    """Documents whose features are kept, so that labels added later are told apart from them; 0: none."""
    tfidf: bool = False
    """Whether linear rows on tf-idf score again what the cascade finds."""
    linear: LinearSettings = LinearSettings()  # noqa: RUF009
    """How these rows are trained."""
    embedding: float = 0.0
    """Length of the encoder's output in what they read, tf-idf's being 1; 0: words alone; 1 in the paper."""

    def check(self) -> None:
        """Refuse values out of range."""
        super().check()
        self.require(0 <= self.embedding <= 1000, "embedding", "0 to 1000")
        self.require(self.background >= 0, "background", "from 0 up")
        fine = self.layers is None or all(self.layers)
        self.require(fine, "layers", "one or more encoder layers for each level, or null")
        fine = self.shortlists is None or all(keep >= 1 for keep in self.shortlists)
        self.require(fine, "shortlists", "from 1 up for each level of clusters, or null")
        fine = self.dropouts is None or all(0 <= p < 1 for p in self.dropouts)
        self.require(fine, "dropouts", "0 or more, below 1, for each level, or null")


@dataclass(frozen=True, kw_only=True)
class CascadeXMLTfidfSettings(CascadeXMLSettings):
    """Settings of CascadeXML, with linear rows on tf-idf."""

    tfidf: bool = True


@dataclass(frozen=True, kw_only=True)
class LightXMLSettings(CascadeXMLSettings):
    """Settings of LightXML: those of CascadeXML, with other defaults."""

    rescale: bool = False
    score: Literal["chosen", "last", "parent", "path"] = "parent"


def _preset(
    layers: tuple[tuple[int, ...], ...],
    clusters: tuple[int, ...],
    shortlists: tuple[int, ...],
    epochs: float,
    max_tokens: int,
    dropouts: tuple[float, ...],
) -> CascadeXMLSettings:
    common: dict[str, Any] = {
        "encoder": "bert-base-uncased",
        "pooling": "cls",
        "encoder_dropout": 0.1,
        "init": "random",
        "optimizer": "adam",
        "precision": "float32",
        "score": "last",
        "tree": {"levels": clusters},
        "training": {
            "epochs": epochs,
            "head_epochs": 0.0,
            "short_tokens": 0,
            "batch": 64,
            "accumulate": 4,
            "rate": 1e-4,
            "token_rate": 1e-4,
            "head_rate": 1e-3,
            "decay": 0.01,
        },
    }
    return CascadeXMLSettings(
        layers=layers, shortlists=shortlists, max_tokens=max_tokens, dropouts=dropouts
    ).with_values(common)


_FOUR = ((5, 6), (8,), (10,), (12,))
_CLUSTERS = (2**10, 2**13, 2**16)

# Table 9 counts the candidates of a level (2^10, 2^10, 2^11, ~2^12); a shortlist counts the clusters they are
# children of, so 2^10 candidates of 8-way clusters are 128, and ~2^12 labels are 400 clusters of 10.
PRESETS: dict[str, CascadeXMLSettings] = {
    "wiki10-31k": _preset(((9, 10), (11,), (12,)), (2**9, 2**12), (64, 64), 15, 256, (0.3, 0.3, 0.4)),
    "amazoncat-13k": _preset(((7, 8), (10,), (12,)), (2**8, 2**11), (32, 39), 6, 256, (0.2, 0.3, 0.4)),
    "wiki-500k": _preset(_FOUR, _CLUSTERS, (128, 256, 512), 12, 128, (0.2, 0.25, 0.35, 0.5)),
    "amazon-670k": _preset(_FOUR, _CLUSTERS, (128, 256, 400), 15, 128, (0.2, 0.25, 0.4, 0.5)),
    "amazon-3m": _preset(_FOUR, _CLUSTERS, (128, 256, 96), 15, 128, (0.2, 0.25, 0.3, 0.5)),
}
"""By corpus: CascadeXML(PRESETS["amazon-670k"]); with "/coarse" and "/no-rescale" the ablations."""

for _name in ("wiki-500k", "amazon-670k", "amazon-3m"):
    _whole = PRESETS[_name]
    assert _whole.shortlists is not None
    # Half the clusters, each with twice the labels: half of them for the same number of candidates.
    PRESETS[f"{_name}/coarse"] = _whole.with_values(
        {
            "tree": {"levels": (2**10, 2**13, 2**15)},
            "shortlists": (*_whole.shortlists[:2], _whole.shortlists[2] // 2),
        }
    )
    PRESETS[f"{_name}/no-rescale"] = _whole.with_values({"rescale": False})
