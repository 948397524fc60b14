"""How each model of the linear family is called: ours, and the peers in environments of their own.

A maker imports its library and reads its input, so that neither is in the measured time. What it gives back
trains, saves and loads a model (measured), and says how to read the model's predictions (not measured).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

K = 5
BEAM = {"xr-linear": 20, "pecos": 20, "parabel": 10, "bonsai": 10, "omikuji": 10, "omikuji-bonsai": 10}
PRUNED = 0.01  # weights of linear-svc below are dropped, as DiSMEC does
AT_ONCE = 1000  # documents that linear-svc scores together: its scores are dense


@dataclass(frozen=True)
class Run:
    """One model on one corpus."""

    fit: Callable[[Path], Callable[[Any], Any]]
    """Trains, saves to the folder, loads from there; returns the function that predicts a matrix."""
    ranked: Callable[[Any], tuple[Any, Any]] = lambda found: found
    """Labels and scores, both (documents, K), of what was predicted; -1 for no label."""


def matrix(folder: Path, name: str) -> Any:
    return sp.load_npz(folder / f"{name}.npz").astype(np.float32, copy=False)


def ours(name: str, folder: Path) -> Run:
    from xmcascade import Corpus
    from xmcascade.models import MODELS, load
    from xmcascade.store import Strings

    x, y = matrix(folder, "X.trn"), matrix(folder, "Y.trn")
    label_names = Strings.of(map(str, range(y.shape[1])))
    settings = {"beam": BEAM[name]} if name in BEAM else {}

    def fit_on(features: Any, labels: Any, saved: Path) -> Callable[[Any], Any]:
        corpus = Corpus(labels=labels, label_names=label_names, features=features)
        MODELS[name](**settings).fit(corpus).save(saved)
        loaded = load(saved)
        return lambda queries: loaded.rank(queries, K)

    fit_on(x[:200], y[:200], folder / "warm")(x[:50])  # compile first: the others come compiled
    return Run(lambda saved: fit_on(x, y, saved), lambda found: (found.labels, found.scores))


def pecos(name: str, folder: Path) -> Run:
    from pecos.xmc import Indexer, LabelEmbeddingFactory
    from pecos.xmc.xlinear.model import XLinearModel

    x, y = matrix(folder, "X.trn"), matrix(folder, "Y.trn")

    def fit(saved: Path) -> Callable[[Any], Any]:
        of_labels = LabelEmbeddingFactory.create(y, x, method="pifa")
        chain = Indexer.gen(of_labels, indexer_type="hierarchicalkmeans", threads=2)
        XLinearModel.train(x, y, C=chain, threads=2).save(str(saved))
        loaded = XLinearModel.load(str(saved), is_predict_only=True)
        return lambda queries: loaded.predict(queries, beam_size=BEAM[name], only_topk=K, threads=2)

    def ranked(found: Any) -> tuple[Any, Any]:
        rows = np.split(np.arange(found.nnz), found.indptr[1:-1])
        return _padded(zip(found.indices[at], found.data[at], strict=True) for at in rows)

    return Run(fit, ranked)


def omikuji(name: str, folder: Path) -> Run:
    import omikuji as library

    settings = library.Model.default_hyper_param()  # those of Parabel
    if name == "omikuji-bonsai":  # as its README compares itself with Bonsai
        settings.cluster_k, settings.cluster_balanced, settings.max_depth = 100, False, 3

    def fit(saved: Path) -> Callable[[Any], Any]:
        library.Model.train_on_data(str(svm(folder)), settings, n_threads=2).save(str(saved))
        loaded = library.Model.load(str(saved))

        def predict(queries: Any) -> list[Any]:  # its Python binding takes one document, as pairs
            found = []
            for row in range(queries.shape[0]):
                at = slice(queries.indptr[row], queries.indptr[row + 1])
                pairs = list(zip(queries.indices[at].tolist(), queries.data[at].tolist(), strict=True))
                found.append(loaded.predict(pairs, beam_size=BEAM[name], top_k=K))
            return found

        return predict

    return Run(fit, _padded)


def svm(folder: Path) -> Path:
    """The training documents as the file that omikuji reads; made on first use, before any measuring."""
    path = folder / "train.svm"
    if path.exists():
        return path
    x, y = matrix(folder, "X.trn"), matrix(folder, "Y.trn")
    part = path.with_suffix(".part")
    with part.open("w") as out:
        out.write(f"{x.shape[0]} {x.shape[1]} {y.shape[1]}\n")
        for row in range(x.shape[0]):
            own = ",".join(map(str, y.indices[y.indptr[row] : y.indptr[row + 1]].tolist()))
            at = slice(x.indptr[row], x.indptr[row + 1])
            pairs = zip(x.indices[at].tolist(), x.data[at].tolist(), strict=True)
            out.write(own + " " + " ".join(f"{f}:{v:.6g}" for f, v in pairs) + "\n")
    return part.replace(path)


def napkinxc(name: str, folder: Path) -> Run:
    from napkinxc.models import PLT

    x, y = matrix(folder, "X.trn"), matrix(folder, "Y.trn")

    def fit(saved: Path) -> Callable[[Any], Any]:
        PLT(str(saved), threads=2, seed=0).fit(x, y)  # saves while it trains
        loaded = PLT(str(saved), threads=2)
        loaded.load()
        return lambda queries: loaded.predict_proba(queries, top_k=K)

    return Run(fit, _padded)


def linear_svc(name: str, folder: Path) -> Run:
    from joblib import Parallel, delayed
    from sklearn.svm import LinearSVC

    warnings.filterwarnings("ignore")  # some labels do not converge at scikit-learn's defaults
    x, columns = matrix(folder, "X.trn").astype(np.float64), matrix(folder, "Y.trn").tocsc()
    counts = np.diff(columns.indptr)
    learnt = np.flatnonzero((counts > 0) & (counts < x.shape[0]))

    def one(label: int) -> tuple[Any, Any, float]:
        target = np.zeros(x.shape[0], np.int8)
        target[columns.indices[columns.indptr[label] : columns.indptr[label + 1]]] = 1
        model = LinearSVC(dual=True).fit(x, target)  # the same optimum, sooner on all three corpora
        kept = np.flatnonzero(np.abs(model.coef_[0]) >= PRUNED)
        return kept, model.coef_[0][kept].astype(np.float32), model.intercept_[0]

    def fit(saved: Path) -> Callable[[Any], Any]:
        # Threads: CPU seconds of other processes would not be counted, and liblinear lets go of the GIL.
        found = Parallel(n_jobs=2, prefer="threads")(delayed(one)(label) for label in learnt)
        features, values = (np.concatenate([each[i] for each in found]) for i in range(2))
        ends = np.zeros(len(counts) + 1, np.int64)
        ends[learnt + 1] = [len(each[0]) for each in found]
        weights = sp.csc_matrix((values, features, np.cumsum(ends)), shape=(x.shape[1], len(counts)))
        bias = np.full(len(counts), -np.inf, np.float32)
        bias[learnt] = [each[2] for each in found]
        saved.mkdir()
        sp.save_npz(saved / "weights.npz", weights.tocsr(), compressed=False)
        np.save(saved / "bias.npy", bias)
        loaded = sp.load_npz(saved / "weights.npz")

        def predict(queries: Any) -> tuple[Any, Any]:
            parts = [
                _best((queries[at : at + AT_ONCE] @ loaded).toarray() + bias)
                for at in range(0, queries.shape[0], AT_ONCE)
            ]
            return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])

        return predict

    return Run(fit)


def _best(scores: Any) -> tuple[Any, Any]:
    """The K best columns of each row, best first."""
    some = np.argpartition(-scores, K, axis=1)[:, :K]
    values = np.take_along_axis(scores, some, axis=1)
    order = np.argsort(-values, axis=1, kind="stable")
    labels = np.take_along_axis(some, order, axis=1).astype(np.int32)
    return labels, np.take_along_axis(values, order, axis=1)


def _padded(found: Iterable[Iterable[tuple[int, float]]]) -> tuple[Any, Any]:
    """Pairs of label and score of each document, as two matrices, best first."""
    rows = [sorted(pairs, key=lambda pair: -pair[1])[:K] for pairs in found]
    labels, scores = np.full((len(rows), K), -1, np.int32), np.zeros((len(rows), K), np.float32)
    for row, pairs in enumerate(rows):
        for rank, (label, score) in enumerate(pairs):
            labels[row, rank], scores[row, rank] = label, score
    return labels, scores


RUNS: dict[str, tuple[str | None, Callable[[str, Path], Run]]] = {
    # name: environment (None: ours), maker; each peer follows ours, so that both meet the same machine
    "xr-linear": (None, ours),
    "pecos": ("pecos", pecos),
    "parabel": (None, ours),
    "omikuji": ("omikuji", omikuji),
    "bonsai": (None, ours),
    "omikuji-bonsai": ("omikuji", omikuji),
    "dismec": (None, ours),
    "linear-svc": ("scikit-learn", linear_svc),
    "napkinxc": ("napkinxc", napkinxc),
}
