"""Nearest documents by cosine, and what their labels vote for.

Training documents are held by feature (an inverted index), so a query multiplies only where it shares a word
with a document. Its sums run in the same order whatever is computed beside it: batches cannot change an
answer.

Names: Q queries, N training documents, L labels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

__all__ = ["nearest", "votes_for", "votes_top"]


@njit(nogil=True, cache=True)
def nearest(
    indptr: Any, columns: Any, values: Any, by_feature: Any, docs: Any, weights: Any, n_docs: int, k: int
) -> Any:
    """The k most similar documents of each query: ids [Q, k] (-1: none) and similarities [Q, k].

    Queries are CSR rows (indptr, columns, values); documents are CSC columns (by_feature, docs, weights).
    Documents that share nothing with a query are not its neighbours; equals go to the lower id.
    """
    n_queries = len(indptr) - 1
    ids = np.full((n_queries, k), -1, np.int32)
    similar = np.zeros((n_queries, k), np.float32)
    sums = np.zeros(n_docs, np.float32)
    for query in range(n_queries):
        for i in range(indptr[query], indptr[query + 1]):
            value = values[i]
            for j in range(by_feature[columns[i]], by_feature[columns[i] + 1]):
                sums[docs[j]] += value * weights[j]
        found = 0
        least = np.float32(0.0)  # what a document must exceed to enter
        for doc in range(n_docs):
            s = sums[doc]
            if s > least:
                at = found if found < k else k - 1
                while at > 0 and similar[query, at - 1] < s:
                    similar[query, at] = similar[query, at - 1]
                    ids[query, at] = ids[query, at - 1]
                    at -= 1
                similar[query, at] = s
                ids[query, at] = doc
                if found < k:
                    found += 1
                if found == k:
                    least = similar[query, k - 1]
            sums[doc] = 0.0
    return ids, similar


@njit(nogil=True, cache=True)
def votes_top(ids: Any, weights: Any, label_rows: Any, labels: Any, prior: Any, by_prior: Any, k: int) -> Any:
    """The k labels with most votes: ids [Q, k], votes [Q, k], and each query's sum of weights [Q].

    Neighbours vote with their weight for the labels they have (label_rows, labels: CSR over documents; no
    label twice in a document); to this every label's prior is added, so that labels are ranked also where no
    neighbour has them. by_prior holds the labels by falling prior. Equals go to the lower label id.
    """
    n_queries = len(ids)
    top = np.full((n_queries, k), -1, np.int32)
    votes = np.zeros((n_queries, k), np.float64)
    total = np.zeros(n_queries, np.float64)
    sums = np.zeros(len(prior), np.float64)
    touched = np.empty(len(prior), np.int32)
    for query in range(n_queries):
        n = 0
        for i in range(ids.shape[1]):
            doc = ids[query, i]
            if doc < 0:
                break
            if weights[query, i] == 0.0:  # a sum of 0 means below: no vote so far
                continue
            total[query] += weights[query, i]
            for j in range(label_rows[doc], label_rows[doc + 1]):
                if sums[labels[j]] == 0.0:
                    touched[n] = labels[j]
                    n += 1
                sums[labels[j]] += weights[query, i]
        found = 0
        n_prior = min(k, len(by_prior))  # a label after these, without votes, loses to each of them
        for c in range(n + n_prior):
            label = touched[c] if c < n else by_prior[c - n]
            if c >= n and sums[label] > 0.0:
                continue
            vote = sums[label] + prior[label]
            at = found
            while at > 0 and (
                votes[query, at - 1] < vote or (votes[query, at - 1] == vote and top[query, at - 1] > label)
            ):
                at -= 1
            if at >= k:
                continue
            for j in range(min(found, k - 1), at, -1):
                votes[query, j] = votes[query, j - 1]
                top[query, j] = top[query, j - 1]
            votes[query, at] = vote
            top[query, at] = label
            if found < k:
                found += 1
        for c in range(n):
            sums[touched[c]] = 0.0
    return top, votes, total


@njit(nogil=True, cache=True)
def votes_for(
    ids: Any, weights: Any, label_rows: Any, labels: Any, prior: Any, asked_rows: Any, asked: Any
) -> Any:
    """The votes of the labels asked for (asked_rows, asked: CSR over queries), and the sums of weights [Q].

    A label may be asked for more than once.
    """
    votes = np.zeros(len(asked), np.float64)
    total = np.zeros(len(ids), np.float64)
    sums = np.zeros(len(prior), np.float64)
    for query in range(len(ids)):
        for i in range(ids.shape[1]):
            doc = ids[query, i]
            if doc < 0:
                break
            total[query] += weights[query, i]
            for j in range(label_rows[doc], label_rows[doc + 1]):
                sums[labels[j]] += weights[query, i]
        for i in range(asked_rows[query], asked_rows[query + 1]):
            votes[i] = sums[asked[i]] + prior[asked[i]]
        for i in range(ids.shape[1]):
            doc = ids[query, i]
            if doc < 0:
                break
            for j in range(label_rows[doc], label_rows[doc + 1]):
                sums[labels[j]] = 0.0
    return votes, total
