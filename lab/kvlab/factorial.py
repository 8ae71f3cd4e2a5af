"""Two-level factorial designs: sign table, effects, sums of squares, shares of variation.

A design of k factors in 2^(k-p) rows makes p of the factors products of the others (generators,
such as D = AB). The model is y = q0 + sum of q_i x_i + error; with replicates the error has a
sum of squares of its own and every effect an interval, with one run per row it has neither.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np
from scipy import stats as distributions


@dataclass(frozen=True)
class Effect:
    name: str
    aliases: tuple
    """What cannot be told from it, by the defining relation, up to products of three."""
    value: float
    low: float
    high: float
    sum_of_squares: float
    share: float
    """Of the variation of all observations, in percent."""


@dataclass(frozen=True)
class Analysis:
    mean: float
    effects: list
    error_sum_of_squares: float
    error_share: float
    total: float
    error_deviation: float
    """Standard deviation of the errors; not a number with one run per row."""
    rows: int
    replicates: int


def sign_table(base: str, generators: dict) -> list:
    """Rows of signs by factor: the base factors in standard order, the others as products.

    `sign_table("ABC", {"D": "AB"})` has 8 rows of A, B, C, D; A changes fastest.
    """
    rows = []
    for signs in itertools.product([-1, 1], repeat=len(base)):
        row = dict(zip(base, reversed(signs)))
        for name, word in generators.items():
            row[name] = math.prod(row[factor] for factor in word)
        rows.append(row)
    return rows


def columns(base: str, generators: dict) -> dict:
    """All products of the base factors, each named after the generated factor that it is."""
    names = {frozenset(word): name for name, word in generators.items()}
    found = {}
    for size in range(1, len(base) + 1):
        for word in itertools.combinations(base, size):
            found[names.get(frozenset(word), "".join(word))] = "".join(word)
    return found


def product(one: str, other: str) -> str:
    """Of two words, in which a letter that stands twice is gone."""
    return "".join(sorted(set(one) ^ set(other)))


def defining_relation(generators: dict) -> list:
    """The words that equal the identity: of D = AB it is ABD, and all their products."""
    words = [product(name, word) for name, word in generators.items()]
    found = set()
    for size in range(1, len(words) + 1):
        for chosen in itertools.combinations(words, size):
            word = ""
            for one in chosen:
                word = product(word, one)
            found.add(word)
    return sorted(found, key=lambda word: (len(word), word))


def aliases(name: str, word: str, generators: dict, length_max=2) -> tuple:
    """What has the same column of signs, apart from the name itself."""
    found = {word} | {product(word, other) for other in defining_relation(generators)}
    short = {other for other in found if other and len(other) <= length_max} - {name}
    return tuple(sorted(short, key=lambda other: (len(other), other)))


def analyse(observations, base: str, generators: dict, confidence=0.95) -> Analysis:
    """Observations are rows of the sign table in its order, each with its replicates."""
    table = sign_table(base, generators)
    data = np.array([np.atleast_1d(row) for row in observations], dtype=float)
    rows, replicates = data.shape
    if rows != len(table):
        raise ValueError(f"the design has {len(table)} rows, {rows} were observed")
    means = data.mean(axis=1)
    mean = float(means.mean())
    error = float(((data - means[:, None]) ** 2).sum())
    total = float(((data - mean) ** 2).sum())
    freedom = rows * (replicates - 1)
    deviation = math.sqrt(error / freedom) if freedom else math.nan
    reach = math.nan
    if freedom:
        reach = float(distributions.t.ppf((1 + confidence) / 2, freedom))
        reach *= deviation / math.sqrt(rows * replicates)
    effects = []
    for name, word in columns(base, generators).items():
        signs = np.array([math.prod(row[factor] for factor in word) for row in table])
        value = float((signs * means).sum()) / rows
        squares = rows * replicates * value**2
        share = 100 * squares / total if total else 0.0
        others = aliases(name, word, generators)
        effects.append(
            Effect(name, others, value, value - reach, value + reach, squares, share)
        )
    share = 100 * error / total if total else 0.0
    return Analysis(mean, effects, error, share, total, deviation, rows, replicates)
