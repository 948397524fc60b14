"""Slow, obvious twins of kernels.cluster: dense rows, full sorts, whole sums."""

import numpy as np

MASK = 2**64 - 1


def mix(number):
    z = (number + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def lower_half(scores):
    """The side of each: 0 for the ceil(N / 2) lowest, equals in order."""
    side = np.ones(len(scores), int)
    side[np.argsort(scores, kind="stable")[: (len(scores) + 1) // 2]] = 0
    return side


def drawn(cosines, state):
    """One of them, with a chance that falls with its cosine."""
    shares = np.maximum(0.0, 1.0 - cosines.astype(float))
    left = shares.sum() * ((state >> 11) / 2.0**53)
    return int((np.cumsum(shares) > left).argmax())


def reassigned(rows, side):
    """One iteration: the sides after measuring every row against the two centres."""
    nearness = []
    for part in (0, 1):
        total = rows[side == part].sum(axis=0, dtype=np.float32)
        length = np.sqrt(float((rows[side == part] @ total).sum(dtype=np.float64)))
        nearness.append((rows @ total) * np.float32(1 / length if length > 0 else 0))
    return lower_half(nearness[1] - nearness[0])


def apart(rows, state):
    """The first sides: nearer to one or the other of two rows."""
    first = state % len(rows)
    second = drawn(rows @ rows[first], mix(state))
    return lower_half(rows @ rows[second] - rows @ rows[first])


def settled(rows, side, iterations, few=1000):
    """The sides after moving rows until hardly any moves."""
    for _ in range(iterations):
        fresh = reassigned(rows, side)
        moved = (fresh != side).sum()
        side = fresh
        if moved <= len(rows) // few:
            break
    return side


def halved(rows, seed, iterations, least=256, most=8, attempts=3):
    """The order of the rows after halving."""
    state = mix(seed)
    stride = max(1, min(len(rows) // least, most))
    if stride == 1:
        side = apart(rows, state)
    else:
        sample, found = rows[::stride], []
        for _ in range(attempts):
            side = settled(sample, apart(sample, state), iterations)
            found.append((centres(sample, side), side))
            state = mix(state)
        lengths = [sum(np.linalg.norm(part) for part in parts) for parts, _ in found]
        left, right = found[int(np.argmax(lengths))][0]
        side = lower_half(rows @ (right / np.linalg.norm(right)) - rows @ (left / np.linalg.norm(left)))
    return np.argsort(settled(rows, side, iterations), kind="stable")


def centres(rows, side):
    """The sums of the two parts."""
    return [rows[side == part].sum(axis=0, dtype=np.float64) for part in (0, 1)]


def nearest(rows, parts, k):
    """The part whose centre each row is nearest to, and one over the length of each part's sum."""
    sums = np.array([rows[parts == part].sum(axis=0) for part in range(k)])
    lengths = np.linalg.norm(sums, axis=1)
    scale = np.divide(1, lengths, out=np.zeros(k), where=lengths > 0)
    return rows @ sums.T * scale, scale
