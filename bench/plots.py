"""Draws the measurements as PNG files: one figure per question, logarithmic axes, units in the labels."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from metrics import METRICS, size_label

COLOURS = {"MPICH": "#d9822b", "Open MPI": "#3f8f5b", "Intel MPI": "#7a5ba8", "machine": "#888888"}
MARKERS = {"MPICH": "s", "Open MPI": "^", "Intel MPI": "D"}
OUR_COLOUR = "#1f4e9c"


def _style(name: str, ours: str) -> dict:
    if name == ours:
        return {"color": OUR_COLOUR, "marker": "o", "linewidth": 2.4, "markersize": 6, "zorder": 3}
    return {"color": COLOURS[name], "marker": MARKERS[name], "linewidth": 1.6, "markersize": 5}


def _plain(value: float, _position: object = None) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def _series(figures: dict, bench: str, axis: int, fixed: dict[int, int]) -> dict[str, list[tuple]]:
    """Per library: (position, median, lowest and highest round). `axis` is 1 for ranks and 2 for bytes."""
    series: dict[str, list[tuple]] = {}
    for key in sorted(figures):
        if key[0] == bench and all(key[index] == value for index, value in fixed.items()):
            for name, value in figures[key].items():
                point = (key[axis], value.median(), min(value.medians), max(value.medians))
                series.setdefault(name, []).append(point)
    return series


def _categories(series: dict[str, list[tuple]]) -> list[int]:
    return sorted({point[0] for points in series.values() for point in points})


def _dress(axes, positions: list[int], label, unit: str) -> None:
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=30))
    axes.yaxis.set_major_formatter(FuncFormatter(_plain))
    axes.yaxis.set_minor_formatter(NullFormatter())
    low, high = axes.get_ylim()
    if high / low > 300:
        axes.yaxis.set_major_locator(LogLocator(numticks=30))
    axes.set_ylabel(unit)
    axes.set_xticks(range(len(positions)), [label(position) for position in positions])
    axes.grid(True, which="major", alpha=0.35)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_series(axes, series: dict[str, list[tuple]], ours: str) -> list[int]:
    """Lines over evenly spaced sizes (so that 0 bytes has a place), shaded from the lowest to the highest round."""
    positions = _categories(series)
    for name, points in sorted(series.items(), key=lambda item: (item[0] != ours, item[0])):
        places = [positions.index(point[0]) for point in points]
        style = _style(name, ours)
        axes.plot(places, [point[1] for point in points], label=name, **style)
        axes.fill_between(places, [point[2] for point in points], [point[3] for point in points],
                          color=style["color"], alpha=0.15, linewidth=0)
    return positions


def _draw_ratio(axes, series: dict[str, list[tuple]], positions: list[int], ours: str, higher: bool) -> None:
    """Our figure over the better peer's, so that the side of 1 is plain to see."""
    medians = {name: {point[0]: point[1] for point in points} for name, points in series.items()}
    ratios = []
    for position in positions:
        peers = [values[position] for name, values in medians.items() if name != ours and position in values]
        mine = medians.get(ours, {}).get(position)
        ratios.append(mine / (max if higher else min)(peers) if mine and peers else None)
    places = [place for place, ratio in enumerate(ratios) if ratio]
    values = [ratio for ratio in ratios if ratio]
    good = [(value >= 1) == higher or value == 1 for value in values]
    axes.bar(places, [value - 1 for value in values], bottom=1, width=0.6,
             color=[OUR_COLOUR if fine else "#b03030" for fine in good])
    for place, value in zip(places, values, strict=True):
        below = value < 1
        axes.annotate(f"{value:.2f}", (place, value), ha="center", va="top" if below else "bottom", fontsize=8,
                      xytext=(0, -2 if below else 2), textcoords="offset points")
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_yscale("log")
    low, high = min([*values, 0.7]), max([*values, 1.4])
    margin = (high / low) ** 0.25
    axes.set_ylim(low / margin, high * margin)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 100 else (1,), numticks=30))
    axes.yaxis.set_major_formatter(FuncFormatter(_plain))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel("ours ÷ better peer")
    axes.set_xticks(range(len(positions)), [size_label(position) for position in positions])
    axes.spines[["top", "right"]].set_visible(False)


def _sized(figures: dict, bench: str, ranks: int, ours: str, folder: Path, note: str,
           lines_us: dict[str, float]) -> Path | None:
    series = _series(figures, bench, 2, {1: ranks})
    if not series:
        return None
    metric = METRICS[bench]
    has_ratio = ours in series and len(series) > 1
    figure, parts = plt.subplots(2 if has_ratio else 1, 1, figsize=(9, 7 if has_ratio else 5), sharex=has_ratio,
                                 squeeze=False, height_ratios=[3, 1.2] if has_ratio else None)
    axes = parts[0][0]
    positions = _draw_series(axes, series, ours)
    for text, line_us in lines_us.items() if bench == "latency" else ():
        axes.axhline(line_us, color="#666666", linestyle="--", linewidth=1.2)
        axes.annotate(f"{text}: {line_us:.3f} µs", (0.99, line_us), ha="right", va="bottom",
                      xycoords=("axes fraction", "data"), fontsize=8, color="#444444")
    _dress(axes, positions, size_label, metric.unit)
    arrow = "higher is better" if metric.higher_is_better else "lower is better"
    axes.set_title(f"{metric.title}, {ranks} ranks ({arrow})", loc="left")
    axes.legend(frameon=False)
    if has_ratio:
        _draw_ratio(parts[1][0], series, positions, ours, metric.higher_is_better)
    parts[-1][0].set_xlabel("message size")
    return _save(figure, folder / f"{bench}-{ranks}.png", note)


def _by_ranks(figures: dict, ours: str, folder: Path, note: str) -> Path | None:
    panels = [("barrier", 0, "Barrier"), ("allreduce", 8, "Allreduce of 8 B")]
    found = [(title, _series(figures, bench, 1, {2: bytes_})) for bench, bytes_, title in panels]
    found = [(title, series) for title, series in found if series]
    if not found:
        return None
    figure, parts = plt.subplots(1, len(found), figsize=(max(5 * len(found), 8), 4.6), squeeze=False, sharey=True)
    for axes, (title, series) in zip(parts[0], found, strict=True):
        positions = _draw_series(axes, series, ours)
        _dress(axes, positions, str, "µs")
        axes.set_title(f"{title} (lower is better)", loc="left")
        axes.set_xlabel("ranks")
    parts[0][0].legend(frameon=False)
    return _save(figure, folder / "collectives-by-ranks.png", note)


def _bars(figures: dict, ours: str, folder: Path, note: str) -> Path | None:
    found = [key for bench in ("startup", "memory", "blocked") for key in sorted(figures) if key[0] == bench]
    if not found:
        return None
    figure, parts = plt.subplots(1, len(found), figsize=(max(4.4 * len(found), 8), 4), squeeze=False)
    for axes, key in zip(parts[0], found, strict=True):
        values = figures[key]
        names = sorted(values, key=lambda name: (name != ours, name))
        heights = [values[name].median() for name in names]
        bars = axes.bar(names, heights, color=[OUR_COLOUR if name == ours else COLOURS[name] for name in names], width=0.6)
        axes.bar_label(bars, [f"{height:.3g}" for height in heights], padding=2, fontsize=9)
        axes.set_ylabel(METRICS[key[0]].unit)
        axes.set_title(METRICS[key[0]].title, loc="left", fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
    return _save(figure, folder / "startup-memory-blocked.png", note)


def _save(figure, path: Path, note: str) -> Path:
    figure.text(0.01, 0.005, note, fontsize=7, color="#555555")
    figure.tight_layout(rect=(0, 0.025, 1, 1))
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return path


def draw(figures: dict, facts: dict[str, str], ours: str, folder: Path) -> list[Path]:
    """Writes the plots that the measurements at hand allow; the paths written."""
    note = f"{facts['processor']}, {facts['cores']} cores, Linux {facts['kernel']}, {facts['date']}; shaded: range of the rounds"
    lines = {"cache line, core to core": "cache_line", "a line for each way": "cache_line_each_way"}
    found = {text: figures.get((bench, 2, 64), {}).get("machine") for text, bench in lines.items()}
    lines_us = {text: value.median() for text, value in found.items() if value}
    drawn = [
        _sized(figures, bench, ranks, ours, folder, note, lines_us)
        for bench in ("latency", "rate", "bandwidth", "bidirectional", "allreduce")
        for ranks in (2, 4, 8, 16)
    ]
    drawn += [_by_ranks(figures, ours, folder, note), _bars(figures, ours, folder, note)]
    return [path for path in drawn if path]
