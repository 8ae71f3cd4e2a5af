"""The report: one HTML file with everything in it, and the raw runs beside it."""

import html
import os
import shutil
from datetime import datetime, timezone
from pathlib import Path

from kvlab.load import GENERATOR
from kvlab.machine import QUIET_PERCENT, ROOT
from kvlab.studies import STUDIES
from kvlab.studies.common import DIFFERS, HOLDS, UNMEASURED, UNTESTED, Plot, Table, Text

VERDICTS = {HOLDS: ("yes", "✓"), DIFFERS: ("no", "✗"), UNTESTED: ("open", "?"),
            UNMEASURED: ("open", "–")}
LINES_SHOWN = 200


def write(out: Path, names, cells, store, machine, papers, options):
    out.mkdir(parents=True, exist_ok=True)
    reports = {name: STUDIES[name].report(store.lines, papers, machine) for name in names}
    text = render(reports, cells, store.lines, machine, options)
    new = out / "report.html.new"
    new.write_text(text)
    os.replace(new, out / "report.html")
    if store.path.is_file():
        shutil.copy(store.path, out / "runs.jsonl")


def render(reports, cells, lines, machine, options) -> str:
    style = (ROOT / "lab/kvlab/page.css").read_text()
    sections = [head(lines, machine, options), contents(reports), all_claims(reports)]
    sections += [study(name, report) for name, report in reports.items()]
    sections += [differences(reports), missing(cells, lines), method(lines, machine, options)]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>The lab of Kvasir</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        + "\n".join(sections) + "\n</body>\n</html>\n"
    )


def escape(text) -> str:
    return html.escape(str(text))


def head(lines, machine, options) -> str:
    mode = "quick: small counts, short runs, wide spreads" if options.quick else "full"
    day = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    servers = ", ".join(machine["servers"].values())
    commits = sorted({line["commit"] for line in lines}) or [machine["commit"]]
    took = sum({line["cell"]: line["took_s"] for line in lines}.values())
    return (
        "<header><h1>Five studies, measured again</h1>\n"
        f"<p>{escape(servers)}. {escape(day)}, commit {escape(', '.join(commits))}, "
        f"{escape(machine['cpu'])}, {machine['cores']} cores, {machine['memory_mb']:,} MB of "
        f"memory, kernel {escape(machine['kernel'])}, disk {escape(machine['disk'])}. Mode: "
        f"{mode}. Measuring took {took / 60:.0f} minutes.</p>\n"
        "<p>Figures are medians; in brackets smallest, largest and the number of runs. Where there "
        "is a dash there is no figure, and below stands why: nothing is interpolated.</p></header>"
    )


def contents(reports) -> str:
    links = [f'<a href="#s{name}">{escape(report.title)}</a>' for name, report in reports.items()]
    links += ['<a href="#differs">What differs, and why</a>', '<a href="#missing">What lacks</a>',
              '<a href="#method">How it was measured</a>']
    return "<nav>" + "\n".join(links) + "</nav>"


def all_claims(reports) -> str:
    rows = []
    for name, report in reports.items():
        counts = [sum(claim.verdict == verdict for claim in report.claims)
                  for verdict in VERDICTS]
        cells = "".join(f"<td>{count}</td>" for count in counts)
        rows.append(f'<tr><td><a href="#s{name}">{escape(report.title)}</a></td>{cells}</tr>')
    heads = "".join(f"<th>{escape(verdict)}</th>" for verdict in VERDICTS)
    return ('<section><h2>Claims at a glance</h2><div class="wide"><table class="count"><thead><tr>'
            f"<th>study</th>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
            "</section>")


def study(name, report) -> str:
    parts = [f'<section id="s{name}"><h2>{escape(report.title)}</h2>',
             f"<p>{escape(report.about)}</p>", claims(report)]
    plots = []
    for part in [*report.parts, None]:
        if isinstance(part, Plot):
            plots.append(figure(part))
            continue
        if plots:
            parts.append('<div class="plots">' + "".join(plots) + "</div>")
            plots = []
        if isinstance(part, Table):
            parts.append(table(part))
        elif isinstance(part, Text):
            parts.append(f'<p class="note">{escape(part.text)}</p>')
    return "\n".join([*parts, "</section>"])


def claims(report) -> str:
    items = []
    for claim in report.claims:
        kind, sign = VERDICTS[claim.verdict]
        items.append(
            f'<li class="{kind}"><p class="says"><b>{sign} {escape(claim.verdict)}</b> '
            f"{escape(claim.text)}</p><dl><dt>the paper</dt><dd>{escape(claim.paper)}</dd>"
            f"<dt>Kvasir</dt><dd>{escape(claim.kvasir)}</dd></dl><p>{escape(claim.why)}</p></li>"
        )
    return '<h3>Claims</h3><ul class="claims">' + "\n".join(items) + "</ul>"


def figure(plot) -> str:
    note = f"<small>{escape(plot.note)}</small>" if plot.note else ""
    return (f'<figure aria-label="{escape(plot.title)}"><figcaption>{escape(plot.title)}{note}'
            f"</figcaption>{unique(plot.svg)}</figure>")


_count = 0


def unique(svg: str) -> str:
    """Names inside of one plot must not meet those of another on the same page."""
    global _count
    _count += 1
    mark = f"p{_count}-"
    return (svg.replace('id="', f'id="{mark}').replace('href="#', f'href="#{mark}')
            .replace("url(#", f"url(#{mark}"))


def table(part) -> str:
    heads = "".join(f"<th>{escape(name)}</th>" for name in part.frame.columns)
    rows = []
    for values in part.frame.itertuples(index=False):
        rows.append("<tr>" + "".join(f"<td>{escape(value)}</td>" for value in values) + "</tr>")
    note = f'<p class="note">{escape(part.note)}</p>' if part.note else ""
    return (f"<h3>{escape(part.title)}</h3>{note}<div class=\"wide\"><table><thead><tr>{heads}</tr>"
            f"</thead><tbody>{''.join(rows)}</tbody></table></div>")


def differences(reports) -> str:
    parts = ['<section id="differs"><h2>What differs from the papers, and why</h2>']
    for report in reports.values():
        rows = "".join(f"<tr><td>{escape(what)}</td><td>{escape(why)}</td></tr>"
                       for what, why in report.differs)
        parts.append(f'<h3>{escape(report.title)}</h3><div class="wide"><table class="text"><thead>'
                     f"<tr><th>here</th><th>why</th></tr></thead><tbody>{rows}</tbody></table>"
                     "</div>")
    return "\n".join([*parts, "</section>"])


def missing(cells, lines) -> str:
    known = {line["cell"] for line in lines}
    reasons = {}
    for cell in cells:
        if cell.id not in known:
            reasons.setdefault("it was not run: this call ended before", []).append(cell.id)
    wanted = {cell.id for cell in cells}
    for line in lines:
        if "missing" in line and line["cell"] in wanted:
            reasons.setdefault(line["missing"], []).append(line["cell"])
        elif "why" in line.get("measured", {}) and line["cell"] in wanted:
            why = f"{line['measured']['case']}: {line['measured']['why']}"
            reasons.setdefault(why, []).append(line["cell"])
    count = sum(map(len, reasons.values()))
    rows = "".join(
        f"<tr><td>{escape(', '.join(dict.fromkeys(names)))}</td><td>{escape(reason)}</td></tr>"
        for reason, names in list(reasons.items())[:LINES_SHOWN]
    )
    body = (f'<div class="wide"><table class="text"><thead><tr><th>cell</th><th>why there is no '
            f"figure</th></tr></thead><tbody>{rows}</tbody></table></div>"
            if rows else "<p>Nothing: every cell has its figures.</p>")
    return (f'<section id="missing"><h2>What lacks</h2><p>{count} cells of {len(cells)} have no '
            f"figures or not all.</p>{body}</section>")


def disturbed(lines) -> str:
    """Cells that began while others had work to do."""
    busy = {line["cell"]: line["others_busy"] for line in lines if "others_busy" in line}
    loud = {cell: value for cell, value in busy.items() if value > QUIET_PERCENT}
    if not loud:
        return "Before each cell other processes used little of the processors."
    names = ", ".join(f"{cell} ({value:.0f} %)" for cell, value in sorted(loud.items()))
    return (f"{len(loud)} of {len(busy)} cells began while other processes used more than "
            f"{QUIET_PERCENT} % of the processors, so their figures are worth less: "
            f"{escape(names)}.")


def method(lines, machine, options) -> str:
    parts = {}
    for line in lines:
        key = f"{line['study']}/{line['part']}"
        parts.setdefault(key, {"runs": set(), "options": line["options"], "seeds": set()})
        parts[key]["runs"].add(line["cell"].split("/")[-1])
        parts[key]["seeds"].add(line["seed"])
    rows = "".join(
        f"<tr><td>{escape(key)}</td><td>{len(part['runs'])}</td>"
        f"<td>{escape(', '.join(map(str, part['seeds'])))}</td>"
        f"<td>{escape(', '.join(f'{name} {value}' for name, value in part['options'].items()))}"
        "</td></tr>"
        for key, part in parts.items()
    )
    facts = "".join(f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>"
                    for name, value in machine.items() if name != "servers")
    return (
        '<section id="method"><h2>How it was measured</h2>'
        "<p>Every raw run is a line of runs.jsonl beside this page, with its cell, commit, "
        "program, options, seed and time. Scenarios of <code>cargo xtask bench</code> are driven, "
        f"not repeated; what they lack is measured by: {escape(GENERATOR)}; redis-benchmark "
        "7.0.15; strace. A fresh server is started for each cell, on its own core or cores, and "
        "the load comes from the machine's last core, or from as many of the last as load_cores "
        "says.</p>"
        f"<p>{disturbed(lines)}</p>"
        f'<div class="wide"><table class="text"><tbody>{facts}</tbody></table></div>'
        '<h3>Repetitions, seeds and options</h3><div class="wide"><table class="text"><thead><tr>'
        "<th>part</th><th>runs</th><th>seed</th><th>options (of one cell)</th></tr></thead>"
        f"<tbody>{rows}</tbody></table></div></section>"
    )
