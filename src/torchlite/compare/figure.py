"""The figure for a paper: curves with bands above, intervals sorted below, in one column's width."""

import math
import warnings
from pathlib import Path
from typing import Any

from torchlite.compare import curves
from torchlite.compare.groups import Group
from torchlite.compare.report import Report
from torchlite.errors import UserError
from torchlite.scores import with_unit

WIDTH = 3.4  # inches: one column of a two-column page
FONT = 7  # points, as printed
MOST_CURVES = 6
MOST_ROWS = 20
LONGEST_BESIDE = 26  # characters of labels of which two fit beside each other
# The first half of a curve may run out of the frame: its rise would press the differences after it together
EARLY = 2
# Okabe and Ito's colours, told apart by the colour-blind, less yellow, which is lost on paper; dashes serve where all is gray
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (7, 2)))
AXIS = {"updates": "applied updates", "epochs": "epochs", "seconds": "training time (s)"}


def draw(report: Report, path: Path, axis: str = "updates") -> list[str]:
    """Write the figure, as the suffix of `path` says; notes on what it had no room for.

    Raises UserError without matplotlib.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError("Figures need matplotlib; in the clone: pip install -e '.[compare]'.") from error
    rows = report.groups[:MOST_ROWS]
    drawn = _drawn(report)
    notes = []
    if len(report.groups) > MOST_ROWS:
        notes.append(f"{path.name} shows the first {MOST_ROWS} of {len(report.groups)} rows.")
    style: dict[Any, Any] = {
        "font.size": FONT,
        "axes.linewidth": 0.6,
        "pdf.fonttype": 42,  # letters stay letters, which journals ask for
        "savefig.dpi": 300,
        "text.parse_math": False,  # names are no formulas
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    with matplotlib.rc_context(style), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # a name in a script that the font lacks
        colors = dict(zip(drawn, zip(COLORS, DASHES, strict=True), strict=False))
        found = {group: _band(group, default_curve(report)) for group in drawn}
        bands = {g: band for g, band in found.items() if band and math.isfinite(band.mean.x(axis)[-1])}
        heights = ([2.1 + 0.06 * len(bands)] if bands else []) + [0.45 + 0.16 * len(rows)]
        figure = Figure(figsize=(WIDTH, sum(heights) + 0.2), layout="constrained")
        panels = figure.subplots(len(heights), 1, gridspec_kw={"height_ratios": heights}, squeeze=False)[:, 0]
        if bands:
            _draw_curves(panels[0], bands, colors, default_curve(report), axis)
        else:
            notes.append(
                f"No metrics.jsonl has {default_curve(report)} against {axis}, so {path.name} shows no curves."
            )
        _draw_intervals(panels[-1], rows, colors, report)
        date = {"CreationDate": None} if path.suffix == ".pdf" else None  # the same records give the same file
        figure.savefig(path, metadata=date)
    return notes


def _drawn(report: Report) -> list[Group]:
    """The groups whose curves are in colour: the first rows, and the baseline wherever it stands."""
    first = report.groups[:MOST_CURVES]
    if report.baseline is not None and report.baseline not in first:
        first = [*first[:-1], report.baseline]
    return first


def default_curve(report: Report) -> str:
    """The compared score where training measures it, else its validation twin or the monitored one."""
    part, _, name = report.metric.partition("/")
    return report.metric if part == "val" else f"val/{name}" if part == "test" else report.runs[0].monitor


def _band(group: Group, metric: str) -> curves.Band | None:
    found = [(curve, run.seed) for run in group.runs if (curve := curves.read(run.directory).get(metric))]
    return curves.band([curve for curve, _ in found], 500, [seed for _, seed in found]) if found else None


def _draw_curves(panel: Any, bands: dict[Group, curves.Band], colors: dict[Group, Any], metric: str, axis: str) -> None:
    late: list[float] = []
    for group, band in bands.items():
        color, dash = colors[group]
        x = band.mean.x(axis)
        panel.plot(x, band.mean.values, color=color, linestyle=dash, linewidth=1.1, label=_short(group.label))
        if band.low is not None and band.high is not None:
            panel.fill_between(x, band.low, band.high, color=color, alpha=0.13, linewidth=0)
        for side in (band.mean.values, band.low, band.high):
            late += [] if side is None else side[len(side) // EARLY :].tolist()
    room = 0.05 * ((max(late) - min(late)) or abs(late[0]) or 1)
    panel.set_ylim(min(late) - room, max(late) + room)
    panel.margins(x=0.01)
    least, most = (choose(band.n for band in bands.values()) for choose in (min, max))
    seeds = f"{most} seeds" if least == most else f"{least} to {most} seeds"
    panel.set_xlabel(AXIS[axis] + ("" if most == 1 else f"\nmean and 95 % interval over {seeds}"))
    panel.set_ylabel(with_unit(metric))
    handles, labels = panel.get_legend_handles_labels()
    columns = 2 if max(map(len, labels)) <= LONGEST_BESIDE else 1
    style: dict[str, Any] = {"frameon": False, "fontsize": FONT - 1, "handlelength": 2.4, "columnspacing": 1.2}
    panel.figure.legend(handles, labels, loc="outside upper center", ncols=columns, **style)  # in no curve's way


def _short(label: str, most: int = 40) -> str:
    return label if len(label) <= most else label[: most - 1] + "…"


def _draw_intervals(panel: Any, rows: list[Group], colors: dict[Group, Any], report: Report) -> None:
    for place, group in enumerate(rows):
        mean = group.mean(report.metric)
        assert mean is not None
        color = colors[group][0] if group in colors else "#444444"
        panel.plot(
            list(group.seeds(report.metric).values()), [place] * mean.n, "|", color="#999999", markersize=4, zorder=1
        )
        panel.errorbar(
            mean.mean, place, xerr=mean.half_width, fmt="o", color=color, markersize=3, elinewidth=1, capsize=1.5
        )
    panel.set_yticks(range(len(rows)))
    panel.set_yticklabels([_short(group.label, 26) + (" *" if group in report.best else "") for group in rows])
    panel.set_ylim(len(rows) - 0.4, -0.6)
    panel.set_xlabel(f"{with_unit(report.metric)}\nmean, 95 % interval, and each seed")
    panel.grid(axis="x", linewidth=0.3, color="#dddddd")
    panel.set_axisbelow(True)
    if report.baseline is not None:
        theirs = report.baseline.seeds(report.metric).values()
        panel.axvline(sum(theirs) / len(theirs), color="#444444", linewidth=0.6, linestyle=":")
