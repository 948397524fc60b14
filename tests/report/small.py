"""Corpora and comparisons for tests of reports, small enough to be made in no time."""

import numpy as np
import scipy.sparse as sp

from xmcascade import make_synthetic
from xmcascade.report import Row
from xmcascade.report.comparison import judged

TRAIN, TEST = (make_synthetic(n, 20, part=part, words_per_doc=8) for part, n in enumerate((240, 60)))
MEASURED = {
    "train": {"seconds": 12.0, "cpu_seconds": 20.0, "peak_mb": 300.0, "stops": 0},
    "documents_per_second": 4000.0,
    "documents_per_cpu_second": 2000.0,
    "single_ms": 0.4,
    "single_ms_p95": 0.9,
    "singles": 60,
    "peak_mb": 310.0,
    "model_mb": 12.0,
    "date": "2026-01-31",
}


def judged_rows(shares, names=None, error="", **options):
    """A comparison of methods that find the true label of this share of 200 documents."""
    truth = sp.csr_matrix(np.eye(4)[np.arange(200) % 4])
    names = names or [f"method {i}" for i in range(len(shares))]
    rows, found = [], {}
    for i, (name, share) in enumerate(zip(names, shares, strict=True)):
        scaled = {"train": {**MEASURED["train"], "seconds": 3.0**i}, "single_ms": 0.2 + 0.1 * i}
        rows.append(Row(name, ["other==1.0"], "features", {**MEASURED, **scaled}))
        right = np.arange(200) / 200 < share
        labels = np.where(right, np.arange(200) % 4, (np.arange(200) + 1) % 4)[:, None]
        found[name] = labels, np.ones(labels.shape)
    if error:
        rows.append(Row("broken", [], "texts", error=error))
    return judged(rows, found, truth, label_counts=[9, 4, 2, 1], n_train_docs=16, **options)
