"""How load lies in the hash space."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from replay.traces import Series
from scalable.domain.keyspace import KEYSPACE_SIZE, HashRange, key_hash, segment_hash

ZIPF_KEYS = 10_000
DOMINANT_KEY = "the-one"


@dataclass(frozen=True)
class KeySpread:
    """The share of the load below each hash: `below[65536]` is 1."""

    name: str
    below: Series

    def share(self, hash_range: HashRange) -> float:
        """Give the share of the load in a range."""
        return float(self.below[hash_range.end + 1] - self.below[hash_range.start])

    def heat(self, hash_range: HashRange, parts: int) -> Series:
        """Give the shares of equally wide parts of a range; a hash counts where its load is counted."""
        hashes = np.arange(hash_range.size)
        found = np.zeros(parts)
        shares = np.diff(self.below[hash_range.start : hash_range.end + 2])
        np.add.at(found, hashes * parts // hash_range.size, shares)
        return found


def uniform() -> KeySpread:
    """Spread load evenly over all hashes."""
    return KeySpread("uniform", np.linspace(0.0, 1.0, KEYSPACE_SIZE + 1))


def zipf(exponent: float, keys: int = ZIPF_KEYS) -> KeySpread:
    """Spread load over keys of which the n-th most frequent comes with 1 / n ** exponent."""
    weights = np.arange(1, keys + 1, dtype=np.float64) ** -exponent
    return _of_keys(f"zipf:{exponent:g}", [f"key-{number}" for number in range(keys)], weights)


def dominant(share: float) -> KeySpread:
    """Give one key a share of the load, and spread the rest evenly."""
    below = np.linspace(0.0, 1.0 - share, KEYSPACE_SIZE + 1)
    below[segment_hash(key_hash(DOMINANT_KEY)) + 1 :] += share
    return KeySpread(f"dominant:{share:g}", below)


def _of_keys(name: str, keys: list[str], weights: Series) -> KeySpread:
    loads = np.zeros(KEYSPACE_SIZE)
    np.add.at(loads, [segment_hash(key_hash(key)) for key in keys], weights / weights.sum())
    return KeySpread(name, np.concatenate([[0.0], np.cumsum(loads)]))


def parse(text: str) -> KeySpread:
    """Read `uniform`, `zipf:A` (0 < A <= 10) or `dominant:S` (0 < S < 1); raises ValueError."""
    if text == "uniform":
        return uniform()
    kind, _, rest = text.partition(":")
    try:
        number = math.nan if "_" in rest else float(rest)
    except ValueError:
        number = math.nan
    if kind == "zipf" and 0 < number <= 10:
        return zipf(number)
    if kind == "dominant" and 0 < number < 1:
        return dominant(number)
    raise ValueError(
        f"{text!r} is not uniform, zipf:A (A above 0, at most 10) or dominant:S (S between 0 and 1)"
    )
