"""What the lab reads from other programs, what it keeps, and what the report says of it."""

import json
import re
from pathlib import Path

import pytest

from kvlab import cells, load, page, plots
from kvlab.__main__ import Pace, main, parse, plan
from kvlab.cells import Cell, Context, Store, run_cell
from kvlab.machine import HOME, ROOT, Missing, version_in
from kvlab.studies import STUDIES, s001, s003
from kvlab.studies.common import HOLDS, Runs, show, show_spread

PAPERS = json.loads((ROOT / "lab/papers/studies.json").read_text())
MACHINE = {"commit": "abc", "cpu": "a <cpu>", "cores": 2, "memory_mb": 1000, "kernel": "6",
           "disk": "ext4", "servers": {"redis": "Redis 7.0.15"}}


def test_the_table_of_redis_benchmark_is_read():
    text = ('WARNING: no config\n"test","rps","p50_latency_ms"\n"SET","100.5","0.2"\n'
            '"LRANGE_100 (first 100 elements)","50.0","0.4"\n')
    assert load.parse_benchmark(text) == [
        {"test": "SET", "rps": 100.5, "p50_latency_ms": 0.2},
        {"test": "LRANGE_100 (first 100 elements)", "rps": 50.0, "p50_latency_ms": 0.4},
    ]
    with pytest.raises(Missing, match="no table"):
        load.parse_benchmark("Could not connect")


def test_the_table_of_strace_is_read():
    text = ("% time     seconds  usecs/call     calls    errors syscall\n------ ---\n"
            " 60.00    0.000300          30        10           read\n"
            " 40.00    0.000200           1       150         3 epoll_wait\n------\n"
            "100.00    0.000500           3       160         3 total\n")
    assert s001.parse_strace(text) == {"read": 10, "epoll_wait": 150}
    with pytest.raises(Missing):
        s001.parse_strace("")


def test_a_server_s_own_version_is_named():
    text = "Redis server v=7.2.4 sha=0 build=kvasir-0.1.0\nKvasir server v=0.1.0\n"
    assert version_in("Kvasir", text) == "0.1.0"
    assert version_in("Redis", "Redis server v=7.0.15 sha=0") == "7.0.15"
    assert version_in("memcached", "memcached 1.6.18") == "1.6.18"
    assert version_in("Odd", "") == "of unknown version"


@pytest.fixture
def context(tmp_path, monkeypatch):
    monkeypatch.setattr(cells, "wait_until_quiet", lambda _: 0.0)
    return Context(kinds={}, kvasir=tmp_path / "none", quick=True, seed=1)


def test_a_cell_leaves_its_lines_or_a_reason(tmp_path, context):
    store = Store(tmp_path / "runs.jsonl")

    def lacks(_):
        raise Missing("strace is not installed")

    def breaks(_):
        return [1 / 0]

    good = Cell("003/threads/redis/1/1", lambda _: [{"server": "redis", "ops_s": 5}], 1)
    assert run_cell(good, context, store, {}) is None
    bad = Cell("003/threads/kvasir/1/1", lacks, 1)
    assert run_cell(bad, context, store, {}) == "strace is not installed"
    worse = Cell("003/threads/valkey/1/1", breaks, 1)
    assert "division by zero" in run_cell(worse, context, store, {})
    absent = Cell("003/threads/x/1/1", lambda found: found.kind("x"), 1)
    assert run_cell(absent, context, store, {}) == "x is not here"
    again = Store(tmp_path / "runs.jsonl")
    assert again.lines == store.lines
    assert len(again.done(again=False)) == 4
    assert again.done(again=True) == {good.id}


def test_a_line_that_was_cut_off_is_left_out(tmp_path, context):
    path = tmp_path / "runs.jsonl"
    store = Store(path)
    run_cell(Cell("003/a/redis/1/1", lambda _: [{"x": 1}], 1), context, store, {})
    path.write_text(path.read_text() + '{"cell": "003/a/red')
    again = Store(path)
    assert [line["cell"] for line in again.lines] == ["003/a/redis/1/1"]
    run_cell(Cell("003/a/redis/1/2", lambda _: [{"x": 2}], 1), context, again, {})
    assert len(Store(path).lines) == 2


def test_a_full_disk_is_a_reason(context):
    store = Store(Path("/dev/null"))
    store.path = Path("/dev/full")
    run_cell(Cell("003/a/redis/1/1", lambda _: [{"x": 1}], 1), context, store, {})
    assert store.lines[0]["missing"] == "its lines could not be kept: No space left on device"


def test_a_server_that_does_not_start_says_why(tmp_path, monkeypatch):
    from kvlab import servers
    from kvlab.machine import Kind, cores

    monkeypatch.setattr(servers, "HOME", tmp_path)
    program = tmp_path / "server"
    program.write_text("#!/bin/sh\necho no memory here\nexit 3\n")
    program.chmod(0o755)
    with pytest.raises(Missing, match="Odd 1 does not start: no memory here"):
        servers.Server(Kind("redis", "Odd 1", program), cores()[:1])
    assert not list(tmp_path.glob("redis-*"))


def test_all_cells_have_a_name_of_their_own():
    for quick in (True, False):
        options = parse(["all"] + ["--quick"] * quick)
        planned = plan(options)[1]
        assert len({cell.id for cell in planned}) == len(planned) > 100
        assert all(len(cell.id.split("/")) == 5 for cell in planned)


def test_what_is_left_follows_how_long_cells_took():
    pace = Pace([Cell("003/a/b/c/1", None, 100)] * 3)
    assert pace.show() == "5 min"
    pace.add(100, 230)
    assert pace.factor == 2
    assert pace.show() == "7 min"


def lines_of(study, part, rows):
    return [{"cell": f"{study}/{part}/{row['server']}/{row['case']}/{run}", "study": study,
             "part": part, "measured": row, "seed": 1, "took_s": 1, "commit": "abc",
             "options": {}}
            for run, row in enumerate(rows, 1)]


def test_every_report_can_be_made_of_nothing():
    for name, study in STUDIES.items():
        report = study.report([], PAPERS, MACHINE)
        assert report.claims and report.differs, name
        assert all(claim.verdict != HOLDS for claim in report.claims), name


def test_a_report_names_what_lacks(tmp_path):
    options = parse(["003", "--quick"])
    names, planned = plan(options)
    lines = [{"cell": planned[0].id, "study": "003", "part": "benchmark", "seed": 1, "took_s": 1,
              "commit": "abc", "options": {}, "missing": "redis <is> not here"}]
    reports = {"003": s003.report(lines, PAPERS, MACHINE)}
    text = page.render(reports, planned, lines, MACHINE, options)
    assert "redis &lt;is&gt; not here" in text and planned[0].id in text
    assert f"{len(planned)} cells of {len(planned)} have no figures" in text
    assert "it was not run" in text


def test_a_machine_that_was_busy_is_told_of():
    lines = [{"cell": "003/a/redis/1/1", "others_busy": 3.0},
             {"cell": "003/a/kvasir/1/1", "others_busy": 55.0}]
    assert "1 of 2 cells" in page.disturbed(lines)
    assert "kvasir" in page.disturbed(lines) and "redis" not in page.disturbed(lines)
    assert "little" in page.disturbed(lines[:1])


def test_the_design_needs_all_its_rows():
    rows = [{"server": "redis", "case": str(row), "row": row, "ops_s": 100.0 + row}
            for row in range(7)]
    designs = s003.analyse_all(Runs(lines_of("003", "design", rows), "003"))
    assert "there are no figures" in designs["redis"] and "[8]" in designs["redis"]
    rows.append({"server": "redis", "case": "7", "row": 7, "ops_s": 107.0})
    designs = s003.analyse_all(Runs(lines_of("003", "design", rows), "003"))
    assert [effect.value for effect in designs["redis"].effects][:3] == [0.5, 1.0, 2.0] or \
        {effect.name: effect.value for effect in designs["redis"].effects}["C"] == 2.0


def test_the_paper_s_rows_are_computed_by_the_tested_function():
    from kvlab.studies.common import Table

    made = s003.table_of_paper({"rows": [1, 2, 3, 4, 5, 6, 7, 8]})
    assert isinstance(made, Table)
    shares = [float(value) for value in made.frame["share %"]]
    assert sum(shares) == pytest.approx(100)
    rows = PAPERS["003"]["rows"]
    assert rows is None or len(rows) == 8


def test_figures_as_they_are_shown():
    assert [show(value) for value in (1234.5, 12.34, 1.234, 0.1234, 0.00123, None)] == [
        "1,234", "12.3", "1.23", "0.123", "0.0012", "–",
    ]
    assert show_spread([3, 1, 2], 0) == "2 (1 to 3, 3)"
    assert show_spread([5], 0) == "5"
    assert show_spread([]) == "–"


def test_plots_are_svg_that_fits_its_column():
    series = {"redis": {"label": "Redis", "x": [1, 2], "y": [1, 2], "low": [1, 1], "high": [2, 3]},
              "kvasir": {"label": "Kvasir", "x": [1, 2], "y": [3, 4]}}
    svg = plots.lines(series, "x", "y")
    bars = plots.bars([("a", {"redis": ("Redis", 1.0), "kvasir": ("Kvasir", None)})], "x")
    for text in (svg, bars):
        head = re.match(r"<svg [^>]*>", text).group(0)
        assert "viewBox" in head and "width=" not in head
    assert page.unique(svg) != page.unique(svg)


def test_a_study_that_is_not_known_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(["005"])
    assert "003" in capsys.readouterr().err


def test_the_load_generator_compiles_and_refuses_nonsense():
    import subprocess

    program = load.build()
    assert HOME.is_dir()
    for words in (["--node"], ["--node", "1", "--mix", "sing=1"], ["--node", "x"]):
        done = subprocess.run([program, *words], capture_output=True, text=True)
        assert done.returncode == 1 and "load:" in done.stderr
