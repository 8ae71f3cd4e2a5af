"""The Universal Scalability Law: X(N) = lambda N / (1 + sigma (N - 1) + kappa N (N - 1)).

Sigma is contention, kappa coherency; where kappa is above 0 throughput has a peak at
sqrt((1 - sigma) / kappa). Bands come from a bootstrap of the residuals with a fixed seed, since
both parameters often end at their bound of 0, where an interval by derivatives is wrong.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from kvlab.stats import SEED

POINTS_MIN = 4
DRAWS = 300


@dataclass(frozen=True)
class Fit:
    rate: float
    sigma: float
    kappa: float
    r_squared: float
    bands: dict
    """Lower and upper bound by name: rate, sigma, kappa, peak_at, peak."""
    draws: np.ndarray

    @property
    def peak_at(self) -> float:
        return peak_of(self.sigma, self.kappa)

    @property
    def peak(self) -> float:
        return throughput(self.peak_at, self.rate, self.sigma, self.kappa)

    def at(self, count):
        return throughput(np.asarray(count, dtype=float), self.rate, self.sigma, self.kappa)

    def band_at(self, count, confidence=0.95):
        """Lower and upper throughput at each number of clients."""
        count = np.asarray(count, dtype=float)
        curves = np.array([throughput(count, *draw) for draw in self.draws])
        return np.quantile(curves, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)


def throughput(count, rate, sigma, kappa):
    if np.isscalar(count) and math.isinf(count):
        return rate / sigma if sigma > 0 else math.inf
    return rate * count / (1 + sigma * (count - 1) + kappa * count * (count - 1))


def peak_of(sigma, kappa) -> float:
    """Where throughput is highest: 1 at the least, infinity where it never falls."""
    if sigma >= 1:
        return 1.0
    return max(1.0, math.sqrt((1 - sigma) / kappa)) if kappa > 0 else math.inf


def fit(counts, rates, confidence=0.95, draws=DRAWS, seed=SEED) -> Fit:
    """Least squares with all parameters at least 0; several rates at one count are welcome."""
    counts, rates = np.asarray(counts, dtype=float), np.asarray(rates, dtype=float)
    if len(np.unique(counts)) < POINTS_MIN:
        raise ValueError(f"three parameters need at least {POINTS_MIN} different N")
    best = solve(counts, rates)
    residuals = rates - throughput(counts, *best)
    total = float(((rates - rates.mean()) ** 2).sum())
    r_squared = 1 - float((residuals**2).sum()) / total if total > 0 else 1.0
    random = np.random.default_rng(seed)
    # Residuals of a fit are too small by the parameters that it chose.
    scale = math.sqrt(len(rates) / max(1, len(rates) - 3))
    fitted = throughput(counts, *best)
    drawn = []
    for _ in range(draws):
        noise = scale * random.choice(residuals, len(residuals))
        drawn.append(solve(counts, fitted + noise, start=best))
    drawn = np.array(drawn)
    return Fit(*best, r_squared, bands_of(drawn, confidence), drawn)


def solve(counts, rates, start=None):
    highest = float(rates.max())
    scales = np.array([highest / counts[rates.argmax()] * 2, 0.1, 0.001])

    def off(scaled):
        return (throughput(counts, *(scaled * scales)) - rates) / highest

    guesses = [start / scales] if start is not None else [
        np.array([1.0, sigma, kappa]) for sigma in (0.1, 3.0) for kappa in (0.01, 1.0)
    ]
    bounds = ([1e-9, 0, 0], [np.inf, 1 / scales[1] * 10, np.inf])
    options = {"xtol": 1e-12, "ftol": 1e-12, "gtol": 1e-12} if start is None else {}
    found = [
        least_squares(off, np.clip(guess, 1e-9, None), bounds=bounds, **options)
        for guess in guesses
    ]
    return min(found, key=lambda result: result.cost).x * scales


def bands_of(drawn, confidence) -> dict:
    peaks = np.array([peak_of(sigma, kappa) for _, sigma, kappa in drawn])
    tops = np.array([throughput(at, *draw) for at, draw in zip(peaks, drawn)])
    columns = {
        "rate": drawn[:, 0],
        "sigma": drawn[:, 1],
        "kappa": drawn[:, 2],
        "peak_at": peaks,
        "peak": tops,
    }
    ends = [(1 - confidence) / 2, (1 + confidence) / 2]
    # Between infinities no value lies; the nearest one that was drawn is taken.
    return {
        name: tuple(float(end) for end in np.quantile(values, ends, method="nearest"))
        for name, values in columns.items()
    }
