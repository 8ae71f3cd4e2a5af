"""Medians, spreads and intervals: what stands behind every figure of the report."""

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats as distributions

SEED = 20_140_901


@dataclass(frozen=True)
class Spread:
    """Several runs in one value."""

    median: float
    low: float
    high: float
    count: int

    @property
    def half_percent(self) -> float:
        """Half the distance from smallest to largest, as a share of the median."""
        return 50 * (self.high - self.low) / abs(self.median) if self.median else 0.0


def spread(values) -> Spread | None:
    known = [float(value) for value in values if value is not None and math.isfinite(value)]
    if not known:
        return None
    return Spread(float(np.median(known)), min(known), max(known), len(known))


def mean_interval(values, confidence=0.95) -> tuple[float, float, float]:
    """Mean and its confidence interval by Student's t; one value alone has none."""
    values = np.asarray(list(values), dtype=float)
    mean = float(values.mean())
    if len(values) < 2:
        return mean, math.nan, math.nan
    error = float(values.std(ddof=1)) / math.sqrt(len(values))
    reach = float(distributions.t.ppf((1 + confidence) / 2, len(values) - 1)) * error
    return mean, mean - reach, mean + reach


def median_interval(values, confidence=0.95, draws=2000, seed=SEED) -> tuple[float, float]:
    """Bootstrap interval of a median, of a fixed seed."""
    values = np.asarray(list(values), dtype=float)
    random = np.random.default_rng(seed)
    medians = np.median(random.choice(values, (draws, len(values))), axis=1)
    low, high = np.quantile(medians, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def ratio(value, base) -> float | None:
    """None where either is missing: nothing is made up."""
    if value is None or base is None or base == 0:
        return None
    return value / base
