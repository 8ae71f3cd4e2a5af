"""Every statistic against answers that are known from elsewhere."""

import math

import numpy as np
import pytest

from kvlab import factorial, stats, usl


def test_median_and_spread():
    found = stats.spread([12, 10, None, 11, math.nan])
    assert (found.median, found.low, found.high, found.count) == (11, 10, 12, 3)
    assert found.half_percent == pytest.approx(100 / 11)
    assert stats.spread([]) is None
    assert stats.spread([0.0]).half_percent == 0


def test_student_interval():
    # 1 to 5: mean 3, s = 1.5811, t(0.975, 4) = 2.7764.
    mean, low, high = stats.mean_interval([1, 2, 3, 4, 5])
    assert mean == 3
    assert (low, high) == pytest.approx((1.03676, 4.96324), abs=1e-5)
    assert math.isnan(stats.mean_interval([7])[1])


def test_bootstrap_of_a_median():
    assert stats.median_interval([5, 5, 5]) == (5, 5)
    low, high = stats.median_interval(range(101))
    assert 35 <= low < 50 < high <= 65
    assert (low, high) == stats.median_interval(range(101))


def test_ratio_of_what_is_missing():
    assert stats.ratio(6, 3) == 2
    assert stats.ratio(None, 3) is None
    assert stats.ratio(3, 0) is None


COUNTS = [1, 5, 10, 20, 30, 50, 70, 100]


def test_usl_is_found_exactly_without_noise():
    rates = usl.throughput(np.array(COUNTS, dtype=float), 1000, 0.05, 0.0004)
    found = usl.fit(COUNTS, rates, draws=20)
    assert found.rate == pytest.approx(1000, rel=1e-4)
    assert found.sigma == pytest.approx(0.05, rel=1e-3)
    assert found.kappa == pytest.approx(0.0004, rel=1e-3)
    assert found.peak_at == pytest.approx(math.sqrt(0.95 / 0.0004), rel=1e-3)
    assert found.r_squared == pytest.approx(1)
    low, high = found.bands["sigma"]
    assert low <= 0.0501 and high >= 0.0499


def test_usl_of_amdahl_has_no_peak():
    rates = usl.throughput(np.array(COUNTS, dtype=float), 100, 0.5, 0)
    found = usl.fit(COUNTS, rates, draws=5)
    assert found.kappa < 1e-6
    assert usl.peak_of(0.5, 0) == math.inf
    assert usl.throughput(math.inf, 100, 0.5, 0) == 200


def test_usl_that_falls_from_the_first_client_on():
    assert usl.peak_of(1.0, 0.1) == 1
    assert usl.peak_of(0.5, 50) == 1


def test_usl_band_holds_the_truth_under_noise():
    random = np.random.default_rng(3)
    counts = np.array(COUNTS * 3, dtype=float)
    rates = usl.throughput(counts, 1000, 0.1, 0.0005) * random.normal(1, 0.02, len(counts))
    found = usl.fit(counts, rates, draws=200)
    assert found.bands["sigma"][0] <= 0.1 <= found.bands["sigma"][1]
    assert found.bands["kappa"][0] <= 0.0005 <= found.bands["kappa"][1]
    low, high = found.band_at(COUNTS)
    truth = usl.throughput(np.array(COUNTS, dtype=float), 1000, 0.1, 0.0005)
    assert (low <= truth * 1.02).all() and (high >= truth * 0.98).all()


def test_usl_refuses_too_few_points():
    with pytest.raises(ValueError, match="at least 4"):
        usl.fit([1, 2, 2, 4], [1, 2, 2, 3])


def by_name(analysis):
    return {effect.name: effect for effect in analysis.effects}


def test_two_factors_of_a_textbook():
    # Jain, The Art of Computer Systems Performance Analysis, section 17.2: memory and cache.
    found = factorial.analyse([15, 45, 25, 75], "AB", {})
    effects = by_name(found)
    assert found.mean == 40
    assert {name: effect.value for name, effect in effects.items()} == {"A": 20, "B": 10, "AB": 5}
    assert found.total == 2100
    shares = [round(effects[name].share) for name in ("A", "B", "AB")]
    assert shares == [76, 19, 5]
    assert math.isnan(effects["A"].low) and found.error_sum_of_squares == 0


def test_two_factors_with_three_replicates_of_a_textbook():
    # The same book, section 18.1 to 18.5.
    rows = [(15, 18, 12), (45, 48, 51), (25, 28, 19), (75, 75, 81)]
    found = factorial.analyse(rows, "AB", {}, confidence=0.90)
    effects = by_name(found)
    assert found.mean == 41
    assert [effects[name].value for name in ("A", "B", "AB")] == [21.5, 9.5, 5]
    assert [effects[name].sum_of_squares for name in ("A", "B", "AB")] == [5547, 1083, 300]
    assert (found.error_sum_of_squares, found.total) == (102, 7032)
    assert found.error_deviation == pytest.approx(3.57, abs=0.005)
    assert (effects["A"].low, effects["A"].high) == pytest.approx((19.58, 23.42), abs=0.01)
    assert found.error_share == pytest.approx(1.45, abs=0.01)


GENERATORS = {"D": "AB", "E": "AC", "F": "BC"}


def test_sign_table_of_the_study():
    rows = factorial.sign_table("ABC", GENERATORS)
    signs = ["".join("+" if row[name] > 0 else "-" for name in "ABCDEF") for row in rows]
    assert signs == [
        "---+++", "+----+", "-+--+-", "++-+--", "--++--", "+-+-+-", "-++--+", "++++++",
    ]


def test_columns_are_orthogonal_and_balanced():
    rows = factorial.sign_table("ABC", GENERATORS)
    for one in "ABCDEF":
        assert sum(row[one] for row in rows) == 0
        for other in "ABCDEF":
            wanted = 8 if one == other else 0
            assert sum(row[one] * row[other] for row in rows) == wanted


def test_aliases_of_the_study():
    assert factorial.defining_relation(GENERATORS) == [
        "ABD", "ACE", "BCF", "DEF", "ABEF", "ACDF", "BCDE",
    ]
    effects = by_name(factorial.analyse(range(8), "ABC", GENERATORS))
    assert list(effects) == ["A", "B", "C", "D", "E", "F", "ABC"]
    assert effects["A"].aliases == ("BD", "CE")
    assert effects["D"].aliases == ("AB", "EF")
    assert effects["ABC"].aliases == ("AF", "BE", "CD")


def test_a_design_finds_what_was_put_in():
    rows = factorial.sign_table("ABC", GENERATORS)
    truth = {"A": 3, "B": 0, "C": -1, "D": 40, "E": 5, "F": 0}
    random = np.random.default_rng(9)
    means = [100 + sum(truth[name] * row[name] for name in truth) for row in rows]
    data = [mean + random.normal(0, 0.5, 5) for mean in means]
    found = factorial.analyse(data, "ABC", GENERATORS)
    for name, effect in by_name(found).items():
        assert effect.low - 0.2 <= truth.get(name, 0) <= effect.high + 0.2
    parts = sum(effect.sum_of_squares for effect in found.effects) + found.error_sum_of_squares
    assert parts == pytest.approx(found.total)
    shares = sum(effect.share for effect in found.effects) + found.error_share
    assert shares == pytest.approx(100)
    assert by_name(found)["D"].share > 95


def test_a_design_refuses_another_number_of_rows():
    with pytest.raises(ValueError, match="8 rows, 7"):
        factorial.analyse([1] * 7, "ABC", GENERATORS)
