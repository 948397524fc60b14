"""Spherical k-means over label features: exact halves of a cluster, or k parts of any size.

A cluster is a range of a permutation of the labels; features are only read. The two centres of a halving lie
interleaved, so a feature's pair is one memory access, and only labels that change sides touch them. All
randomness comes from the seed, the level and the cluster: neither threads nor neighbours change an answer.

Features are CSR (starts, columns, values), or dense (None, None, values [L, D]): numba knows `values.ndim`
when it compiles and drops the branch that does not apply. Rows have length 1.

Names: L labels, D features, N labels of a cluster, K parts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from xmcascade.kernels.bfloat import SUMS
from xmcascade.kernels.lanes import dot_pairs

__all__ = ["assign", "halve", "halve_clusters", "select", "spread", "update"]

SAMPLE = 256  # labels of the least sample by which a large cluster is divided first
MAX_STRIDE = 8  # every so-manieth label is in the sample, at most
FEW = 1000  # halves have settled when less than 1 label in so many moves
ATTEMPTS = 3  # samples are divided so often; the best division is taken


@njit(nogil=True, cache=True)
def _mix(number: Any) -> Any:
    """Splitmix64: a random uint64 from any uint64."""
    z = np.uint64(number) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit(nogil=True, cache=True, fastmath=SUMS)
def _dense_dot(numbers: Any, sums: Any, part: int) -> Any:
    total = np.float32(0.0)
    for f in range(len(numbers)):
        total += numbers[f] * sums[f, part]
    return total


# Not SUMS: where the order is free the compiler makes gathers of a sparse product, nearly twice as slow.
@njit(nogil=True, cache=True, fastmath={"contract"})
def _dot(starts: Any, columns: Any, values: Any, row: int, sums: Any, part: int) -> Any:
    if values.ndim == 2:
        return _dense_dot(values[row], sums, part)
    total = np.float32(0.0)
    for j in range(starts[row], starts[row + 1]):
        total += values[j] * sums[columns[j], part]
    return total


@njit(nogil=True, cache=True)
def _dot_pair(starts: Any, columns: Any, values: Any, row: int, sums: Any, pair: Any) -> None:
    """pair [2]: a row's products with both sums."""
    if values.ndim == 2:
        pair[0], pair[1] = _dense_dot(values[row], sums, 0), _dense_dot(values[row], sums, 1)
    else:
        pair[:] = 0.0
        dot_pairs(sums, columns, values, starts[row], starts[row + 1], pair)


@njit(nogil=True, cache=True)
def _add(starts: Any, columns: Any, values: Any, row: int, sums: Any, part: int, sign: float) -> None:
    """Add a row, or take it away (sign -1), from a part's sum."""
    factor = np.float32(sign)
    if values.ndim == 2:
        for f in range(values.shape[1]):
            sums[f, part] += factor * values[row, f]
    else:
        for j in range(starts[row], starts[row + 1]):
            sums[columns[j], part] += factor * values[j]


@njit(nogil=True, cache=True)
def _clear(starts: Any, columns: Any, values: Any, order: Any, sums: Any) -> None:
    """Zero the pairs that the rows of a cluster touch; what rounding left there too."""
    touched = 0
    if values.ndim == 1:
        for row in order:
            touched += starts[row + 1] - starts[row]
    if values.ndim == 2 or touched > len(sums) // 4:  # in sequence is faster than here and there
        sums[:] = 0.0
    else:
        for row in order:
            for j in range(starts[row], starts[row + 1]):
                sums[columns[j], 0] = 0.0
                sums[columns[j], 1] = 0.0


@njit(nogil=True, cache=True)
def select(values: Any, k: int) -> Any:
    """The k-th smallest value, counted from 0; reorders the values (quickselect)."""
    low, high = 0, len(values) - 1
    while low < high:
        a, pivot, c = values[low], values[(low + high) >> 1], values[high]
        if a > pivot:
            a, pivot = pivot, a
        pivot = max(a, min(pivot, c))  # the middle one of three
        i, j = low, high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if k <= j:
            high = j
        elif k >= i:
            low = i
        else:
            break
    return values[k]


@njit(nogil=True, cache=True)
def _sides(score: Any, work: Any, n_left: int, side: Any) -> None:
    """side [N]: 0 for the n_left lowest scores, 1 for the others; of equals at the cut the first go left."""
    work[:] = score
    cut = select(work, n_left - 1)
    room = n_left
    for i in range(len(score)):
        room -= score[i] < cut
    for i in range(len(score)):
        side[i] = score[i] > cut
        if score[i] == cut:
            side[i] = room <= 0
            room -= 1


@njit(nogil=True, cache=True)
def _inverse(length: float) -> Any:
    return np.float32(1.0 / length) if length > 0.0 else np.float32(0.0)


@njit(nogil=True, cache=True)
def _lengths(starts: Any, columns: Any, values: Any, order: Any, sums: Any, side: Any) -> Any:
    """The lengths of the two sums; a sum's square is the sum of its own rows' products with it."""
    left, right = 0.0, 0.0
    for i in range(len(order)):
        product = _dot(starts, columns, values, order[i], sums, side[i])
        left += 0.0 if side[i] else product
        right += product if side[i] else 0.0
    return np.sqrt(max(left, 0.0)), np.sqrt(max(right, 0.0))


@njit(nogil=True, cache=True)
def _scores(
    starts: Any, columns: Any, values: Any, order: Any, sums: Any, side: Any, score: Any, work: Any
) -> None:
    """score [N]: how much nearer each row is to the right centre than to the left one."""
    left_square, right_square = 0.0, 0.0
    pair = np.empty(2, np.float32)
    for i in range(len(order)):
        _dot_pair(starts, columns, values, order[i], sums, pair)
        score[i], work[i] = pair
        if side[i]:
            right_square += work[i]  # a centre's square is the sum of its own rows' products with it
        else:
            left_square += score[i]
    left, right = _inverse(np.sqrt(max(left_square, 0.0))), _inverse(np.sqrt(max(right_square, 0.0)))
    for i in range(len(order)):
        score[i] = work[i] * right - score[i] * left


@njit(nogil=True, cache=True)
def _drawn(cosines: Any, state: Any) -> int:
    """One of N, drawn by the random number `state` with a chance that falls with its cosine."""
    total = 0.0
    for cosine in cosines:
        total += max(0.0, 1.0 - cosine)
    left = total * (np.float64(state >> np.uint64(11)) / 2.0**53)
    pick = 0
    for i in range(len(cosines)):
        share = max(0.0, 1.0 - cosines[i])
        if share > 0.0:
            pick = i  # the last one with a share, should rounding walk past the end
            left -= share
            if left < 0.0:
                break
    return pick


@njit(nogil=True, cache=True)
def _apart(starts: Any, columns: Any, values: Any, order: Any, state: Any, sums: Any, scratch: Any) -> None:
    """side [N]: the halves nearer to each of two labels that lie apart. sums is zero before and after."""
    n = len(order)
    side, score, work = scratch[0][:n], scratch[2][:n], scratch[3][:n]
    first = np.int64(state % np.uint64(n))
    _add(starts, columns, values, order[first], sums, 0, 1.0)
    for i in range(n):
        score[i] = _dot(starts, columns, values, order[i], sums, 0)
    second = _drawn(score, _mix(state))
    _add(starts, columns, values, order[second], sums, 1, 1.0)
    for i in range(n):
        score[i] = _dot(starts, columns, values, order[i], sums, 1) - score[i]
    _add(starts, columns, values, order[first], sums, 0, -1.0)
    _add(starts, columns, values, order[second], sums, 1, -1.0)
    _sides(score, work, (n + 1) // 2, side)


@njit(nogil=True, cache=True)
def _settle(
    starts: Any, columns: Any, values: Any, order: Any, iterations: int, sums: Any, scratch: Any
) -> int:
    """Move labels between the halves in side [N] until hardly any moves, or `iterations` times.

    sums [D, 2] is zero before, and the sums of the halves after. Returns the iterations done.
    """
    n = len(order)
    side, fresh, score, work = scratch[0][:n], scratch[1][:n], scratch[2][:n], scratch[3][:n]
    for i in range(n):
        _add(starts, columns, values, order[i], sums, side[i], 1.0)
    done = 0
    moved = n
    while moved > n // FEW and done < iterations:
        _scores(starts, columns, values, order, sums, side, score, work)
        _sides(score, work, (n + 1) // 2, fresh)
        moved = 0
        for i in range(n):
            if fresh[i] != side[i]:
                _add(starts, columns, values, order[i], sums, fresh[i], 1.0)
                _add(starts, columns, values, order[i], sums, side[i], -1.0)
                side[i] = fresh[i]
                moved += 1
        done += 1
    return done


@njit(nogil=True, cache=True)
def halve(
    starts: Any, columns: Any, values: Any, order: Any, seed: Any, iterations: int, sums: Any, scratch: Any
) -> Any:
    """Reorder the labels of one cluster (order [N], N >= 2): the first ceil(N / 2) are its left half.

    Starts from two of its labels that lie apart and moves labels until hardly anything changes, or
    `iterations` times; in a large cluster first a sample, from several starts. Within a half labels keep
    their order. sums [D, 2] is zero before and after; scratch holds side, fresh (uint8), score, work
    (float32) and kept (int32), of N or more. Returns the iterations done with all labels.
    """
    n = len(order)
    side, score, work, kept = scratch[0][:n], scratch[2][:n], scratch[3][:n], scratch[4][:n]
    stride = max(1, min(n // SAMPLE, MAX_STRIDE))
    state = _mix(seed)
    if stride == 1:
        _apart(starts, columns, values, order, state, sums, scratch)
    else:
        sample = order[::stride].copy()
        best, halves = -1.0, side[:0].copy()
        for _ in range(ATTEMPTS):
            _apart(starts, columns, values, sample, state, sums, scratch)
            _settle(starts, columns, values, sample, iterations, sums, scratch)
            left, right = _lengths(starts, columns, values, sample, sums, side)
            if left + right > best:
                best, halves = left + right, side[: len(sample)].copy()
            _clear(starts, columns, values, sample, sums)
            state = _mix(state)
        for i in range(len(sample)):
            _add(starts, columns, values, sample[i], sums, halves[i], 1.0)
        left, right = _lengths(starts, columns, values, sample, sums, halves)
        pair = np.empty(2, np.float32)
        for i in range(n):
            _dot_pair(starts, columns, values, order[i], sums, pair)
            score[i] = pair[1] * _inverse(right) - pair[0] * _inverse(left)
        _clear(starts, columns, values, sample, sums)
        _sides(score, work, (n + 1) // 2, side)
    done = _settle(starts, columns, values, order, iterations, sums, scratch)
    _clear(starts, columns, values, order, sums)
    left_end, n_right = 0, 0
    for i in range(n):
        if side[i]:
            kept[n_right] = order[i]
            n_right += 1
        else:
            order[left_end] = order[i]
            left_end += 1
    order[left_end:] = kept[:n_right]
    return done


@njit(nogil=True, cache=True)
def halve_clusters(
    starts: Any, columns: Any, values: Any, n_features: int, order: Any, bounds: Any, first: int, last: int,
    seed: Any, level: int, iterations: int,
) -> None:  # fmt: skip
    """Halve the clusters first..last of a level, in place: cluster c is order[bounds[c] : bounds[c + 1]]."""
    most = 0
    for c in range(first, last):
        most = max(most, bounds[c + 1] - bounds[c])
    side, fresh = np.empty(most, np.uint8), np.empty(most, np.uint8)
    score, work = np.empty(most, np.float32), np.empty(most, np.float32)
    scratch = (side, fresh, score, work, np.empty(most, np.int32))
    sums = np.zeros((n_features, 2), np.float32)
    for c in range(first, last):
        if bounds[c + 1] - bounds[c] > 1:
            own = _mix(_mix(np.uint64(seed) + np.uint64(level)) + np.uint64(c))
            halve(starts, columns, values, order[bounds[c] : bounds[c + 1]], own, iterations, sums, scratch)


@njit(nogil=True, cache=True)
def spread(
    starts: Any, columns: Any, values: Any, n_features: int, order: Any, k: int, seed: Any, near: Any
) -> int:
    """k-means++: near [N] becomes the nearest of up to k labels of the cluster that lie far apart.

    Each is drawn with a chance that falls with its cosine to those drawn before. Returns how many were
    drawn: fewer than k when all labels are (nearly) equal to one that was.
    """
    n = len(order)
    sums = np.zeros((n_features, 1), np.float32)
    best = np.full(n, -np.inf, np.float32)
    state = _mix(seed)
    pick = np.int64(state % np.uint64(n))
    for part in range(k):
        _add(starts, columns, values, order[pick], sums, 0, 1.0)
        total = 0.0
        for i in range(n):
            cosine = _dot(starts, columns, values, order[i], sums, 0)
            if cosine > best[i]:
                best[i] = cosine
                near[i] = part
            total += max(0.0, 1.0 - best[i])
        _add(starts, columns, values, order[pick], sums, 0, -1.0)
        if total <= 1e-6 * n:
            return part + 1
        state = _mix(state)
        pick = _drawn(best, state)
    return k


@njit(nogil=True, cache=True)
def update(
    starts: Any, columns: Any, values: Any, order: Any, near: Any, fresh: Any, sums: Any, scale: Any
) -> int:
    """Move the rows of a cluster from part near [N] (-1: none yet) to part fresh [N]; returns how many moved.

    Keeps sums [D, K] the parts' sums and scale [K] one over their lengths (0 for an empty part).
    """
    moved = 0
    for i in range(len(order)):
        if fresh[i] != near[i]:
            moved += 1
            _add(starts, columns, values, order[i], sums, fresh[i], 1.0)
            if near[i] >= 0:
                _add(starts, columns, values, order[i], sums, near[i], -1.0)
            near[i] = fresh[i]
    squares = np.zeros(len(scale), np.float64)
    for i in range(len(order)):
        squares[near[i]] += _dot(starts, columns, values, order[i], sums, near[i])
    for part in range(len(scale)):
        scale[part] = 1.0 / np.sqrt(squares[part]) if squares[part] > 0.0 else 0.0
    return moved


@njit(nogil=True, cache=True)
def _add_scaled(factor: Any, numbers: Any, sums: Any) -> None:
    for i in range(len(sums)):
        sums[i] += factor * numbers[i]


@njit(nogil=True, cache=True)
def assign(starts: Any, columns: Any, values: Any, order: Any, sums: Any, scale: Any, fresh: Any) -> None:
    """fresh [N]: the part whose centre, sums [D, K] times scale [K], is nearest; the first among equals."""
    scores = np.empty(len(scale), np.float32)
    for i in range(len(order)):
        row = order[i]
        scores[:] = 0.0
        if values.ndim == 2:
            for f in range(values.shape[1]):
                _add_scaled(values[row, f], sums[f], scores)
        else:
            for j in range(starts[row], starts[row + 1]):
                _add_scaled(values[j], sums[columns[j]], scores)
        fresh[i] = 0
        for part in range(len(scale)):
            scores[part] *= scale[part]
            if scores[part] > scores[fresh[i]]:
                fresh[i] = part
