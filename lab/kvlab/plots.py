"""Plots as SVG: readable in print, on a phone, and by who sees few colours.

Colours are those of Okabe and Ito; each server also has a marker, a line style and a hatch of its
own, so that nothing depends on colour. Figures are narrow, so that letters on a phone are not
smaller than 9 px, and a page shows two or three beside each other.
"""

import io
import re

import matplotlib

matplotlib.use("svg")

import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.ticker import EngFormatter, FuncFormatter, ScalarFormatter  # noqa: E402

LOOKS = {
    "redis": ("#D55E00", "o", "-", ""),
    "valkey": ("#0072B2", "s", "--", "//"),
    "kvasir": ("#000000", "^", "-", ".."),
    "kvasir-epoll": ("#009E73", "D", ":", "xx"),
    "memcached": ("#CC79A7", "v", "-.", "\\\\"),
}
OTHERS = [("#E69F00", "P", "-", "||"), ("#56B4E9", "X", "--", "--"), ("#009E73", "D", ":", "++"),
          ("#CC79A7", "v", "-.", "\\\\"), ("#0072B2", "s", "-", "//"), ("#000000", "^", "-", "..")]

plt.rcParams.update({
    "svg.fonttype": "path", "svg.hashsalt": "kvasir", "font.size": 9, "axes.titlesize": 10,
    "axes.grid": True, "grid.color": "#dddddd", "axes.axisbelow": True, "legend.fontsize": 8.5,
    "legend.frameon": False, "axes.spines.top": False, "axes.spines.right": False,
    "lines.linewidth": 1.4, "lines.markersize": 4, "hatch.linewidth": 0.5,
})
SIZE = (3.9, 2.9)


def look(name, at=0):
    return LOOKS.get(name) or OTHERS[at % len(OTHERS)]


def finish(figure) -> str:
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    plt.close(figure)
    text = out.getvalue()
    text = text[text.index("<svg"):]
    # The page gives the width; a fixed one would not fit a phone.
    return re.sub(r'<svg [^>]*?viewBox="([^"]*)"[^>]*>', r'<svg viewBox="\1" role="img" '
                  r'xmlns="http://www.w3.org/2000/svg" '
                  r'xmlns:xlink="http://www.w3.org/1999/xlink">', text, count=1)


def add_legend(figure, axes):
    handles, labels = axes.get_legend_handles_labels()
    if len(labels) > 1:
        columns = 2 if max(map(len, labels)) > 16 else 3
        figure.legend(handles, labels, loc="outside lower center", ncols=min(columns, len(labels)))


def lines(series, x_label, y_label, log_x=False, log_y=False, bands=None, zero=True) -> str:
    """Series by name: label, x, y, and low and high if they are known."""
    figure, axes = plt.subplots(figsize=SIZE, layout="constrained")
    for at, (name, one) in enumerate(series.items()):
        colour, marker, style, _ = look(name, at)
        if one.get("low") is not None:
            below = [max(0, y - low) for y, low in zip(one["y"], one["low"])]
            above = [max(0, high - y) for y, high in zip(one["y"], one["high"])]
            axes.errorbar(one["x"], one["y"], yerr=[below, above], color=colour, marker=marker,
                          linestyle=one.get("style", style), capsize=2, label=one["label"])
        else:
            axes.plot(one["x"], one["y"], color=colour, marker=marker,
                      linestyle=one.get("style", style), label=one["label"])
    for at, (name, band) in enumerate((bands or {}).items()):
        colour = look(name, at)[0]
        axes.plot(band["x"], band["y"], color=colour, linewidth=1)
        axes.fill_between(band["x"], band["low"], band["high"], color=colour, alpha=0.18,
                          linewidth=0)
    set_axes(axes, x_label, y_label, log_x, log_y, zero)
    add_legend(figure, axes)
    return finish(figure)


def set_axes(axes, x_label, y_label, log_x, log_y, zero):
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    if log_x:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.xaxis.set_minor_formatter(plt.NullFormatter())
    if log_y:
        axes.set_yscale("log")
    elif zero:
        axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(EngFormatter(sep="") if not log_y else powers())
    if log_y:
        axes.yaxis.set_minor_formatter(plt.NullFormatter())


def powers():
    """Of an axis whose ticks differ by factors: none of them is shown as 0."""
    return FuncFormatter(lambda value, _: f"{value:,g}")


def plain():
    formatter = ScalarFormatter()
    formatter.set_scientific(False)
    return formatter


def bars(groups, x_label, y_label=None, log=False) -> str:
    """Groups down, one bar for each server: lying bars leave room for long names.

    A list of pairs: the group's name, and by server a label and a value (or None).
    """
    height = 0.75 + sum(0.19 * len(values) + 0.16 for _, values in groups)
    figure, axes = plt.subplots(figsize=(SIZE[0], max(2.0, height)), layout="constrained")
    place, ticks, names, seen = 0.0, [], [], {}
    for group, values in groups:
        first = place
        for at, (name, (label, value)) in enumerate(values.items()):
            colour, _, _, hatch = look(name, at)
            if value is not None:
                bar = axes.barh(place, value, 0.9, color=light(colour), edgecolor=colour,
                                hatch=hatch, linewidth=0.8)
                seen.setdefault(label, bar)
            else:
                axes.annotate(" no figure", (0, place), va="center", fontsize=7,
                              xycoords=("axes fraction", "data"))
            place += 1
        ticks.append((first + place - 1) / 2)
        names.append(group)
        place += 0.8
    axes.set_yticks(ticks, names)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_xlabel(x_label)
    if log:
        axes.set_xscale("log")
    known = [value for _, values in groups for _, value in values.values() if value is not None]
    is_large = bool(known) and max(known) >= 1000
    axes.xaxis.set_major_formatter(EngFormatter(sep="") if is_large else plain())
    axes.xaxis.set_major_locator(plt.MaxNLocator(5) if not log else plt.LogLocator(numticks=6))
    if len(seen) > 1:
        figure.legend(seen.values(), seen.keys(), loc="outside lower center",
                      ncols=min(3, len(seen)))
    return finish(figure)


def light(colour) -> str:
    """Towards white, so that a hatch is seen on it."""
    parts = [int(colour[at:at + 2], 16) for at in (1, 3, 5)]
    return "#" + "".join(f"{round(part + (255 - part) * 0.45):02x}" for part in parts)
