"""One HTML page that holds everything and asks no network: table, curves, parallel coordinates, score against cost.

Charts are plotly.js, inlined from the Python package `plotly`, which ships it (MIT licence, no other files, kept by Plotly for
a decade). Its parallel coordinates need WebGL, which a browser on a server may lack, so ours are drawn as lines. The page's
policy lets nothing load and only its own two scripts run; names from records enter as text alone.
"""

import base64
import hashlib
import html
import importlib.util
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchlite.compare import curves, table
from torchlite.compare.columns import ABSENT, shown
from torchlite.compare.figure import default_curve
from torchlite.compare.groups import Group
from torchlite.compare.records import Run
from torchlite.compare.report import Report, explained
from torchlite.errors import UserError
from torchlite.scores import with_unit

HERE = Path(__file__).parent
MOST_NUMBERS = 1_000_000  # of curves in the page: about 8 MB
MOST_POINTS, LEAST_POINTS = 300, 20  # of one curve


def page(report: Report) -> str:
    """The page as text. Raises UserError without plotly."""
    library = _library()
    program = "\n".join((HERE / name).read_text(encoding="utf-8") for name in ("charts.js", "page.js"))
    version = re.search(r"plotly\.js v([\d.]+)", library[:500])
    title = f"{len(report.groups)} settings, {len(report.runs)} runs: {report.metric}"
    policy = (
        f"default-src 'none'; script-src {_hash(library)} {_hash(program)}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
    parts = {
        "policy": policy,
        "title": html.escape(shown(title)),
        "style": (HERE / "page.css").read_text(encoding="utf-8"),
        "footer": f"Charts: plotly.js {version[1] if version else ''}, MIT licence, inlined; this page loads nothing.",
        "data": _escaped(contents(report)),
        "library": library,
        "program": program,
    }
    template = (HERE / "page.html").read_text(encoding="utf-8")
    return re.sub(r"@@(\w+)@@", lambda match: parts[match[1]], template)  # one pass: what is put in is not read again


def _library() -> str:
    found = importlib.util.find_spec("plotly")
    path = Path(found.origin).parent / "package_data" / "plotly.min.js" if found and found.origin else None
    if path is None or not path.is_file():
        raise UserError("The page needs plotly; in the clone: pip install -e '.[compare]'.")
    return path.read_text(encoding="utf-8").replace("</script", "<\\/script")


def _hash(script: str) -> str:
    """How a page's policy names a script that may run."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _escaped(value: Any) -> str:
    """JSON that ends no script and opens no comment, whatever the texts in it are."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def contents(report: Report) -> dict[str, Any]:
    """What the page shows: rows, runs, settings and curves, with every number computed."""
    runs = report.runs
    configs = {run.setting: run.config for run in runs}
    settings = list(configs)
    places = {setting: index for index, setting in enumerate(settings)}
    scores = [report.metric, *report.beside]
    drawn = _curves(report)
    group_of = {run: group for group in report.groups for run in group.runs}
    return {
        "metric": report.metric,
        "less_is_better": report.less_is_better,
        "baseline": None if report.baseline is None else report.baseline.label,
        "columns": [shown(key) for key in report.columns],
        "scores": scores,
        "costs": [name for name in ("seconds", "updates") if any(name in run.scores for run in runs)],
        "units": {name: with_unit(name) for name in [*scores, *drawn["curves"], "updates", "seconds"]},
        "summary": explained(report),
        "notes": report.notes,
        "left_out": [f"{shown(str(one.directory))}: {shown(one.reason)}" for one in report.unfit],
        "groups": _groups(report, scores),
        "runs": [_run(run, group_of[run], report.columns, places[run.setting]) for run in runs],
        "settings": [configs[setting] for setting in settings],
        "curve_metric": default_curve(report),
        **drawn,
    }


def _groups(report: Report, scores: Sequence[str]) -> list[dict[str, Any]]:
    places = {run: index for index, run in enumerate(report.runs)}
    return [
        {
            "label": group.label,
            "values": [_cell(group.values[key]) for key in report.columns],
            "n": len(group.seeds(report.metric)),
            "finished": group.finished(report.metric),
            "scores": {name: _mean(group, name) for name in dict.fromkeys([*scores, "seconds", "updates"])},
            "best": group in report.best,
            "baseline": group is report.baseline,
            "comparison": _comparison(group, report),
            "runs": [places[run] for run in group.runs],
        }
        for group in report.groups
    ]


def _comparison(group: Group, report: Report) -> list[list[Any]]:
    """(number to sort by, text) for difference, p, verdict and more seeds."""
    test = group.paired
    texts = table.comparison(group, report) if report.baseline is not None else []
    values: list[Any] = [None, None, texts[2] if texts else None, None]
    if test is not None and test.difference.n:
        values = [test.difference.mean, test.p_holm, texts[2], test.more_seeds]
    return [list(pair) for pair in zip(values, texts, strict=False)]


def _mean(group: Group, name: str) -> list[float | None]:
    mean = group.mean(name)
    return [None, None, None] if mean is None else [mean.mean, mean.low, mean.high]


def _cell(value: Any) -> Any:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else shown(value)


def _run(run: Run, group: Group, columns: Sequence[str], setting: int) -> dict[str, Any]:
    values = [_cell(run.values.get(key, ABSENT)) for key in columns]
    seed = json.loads(run.seed)
    names = ("code", "torch", "device", "num_threads", "hardware", "host")
    return {
        "label": f"{group.label}, seed {shown(seed)}",
        "values": values,
        "seed": _cell(seed),
        "scores": {name: [value, None, None] for name, value in run.scores.items()},
        "directory": shown(str(run.directory)),
        "command": shown(run.command),
        "where": ", ".join(f"{name} {shown(run.values[name])}" for name in names),
        "setting": setting,
    }


def _curves(report: Report) -> dict[str, Any]:
    """`{"curves": {metric: {"groups": […], "runs": […]}}, "arrays": […]}`.

    A curve is [updates, epochs, seconds, mean, low, high, seeds]; the first three are places in `arrays`, which curves share.
    """
    read = {run: curves.read(run.directory) for run in report.runs}
    metrics = list(dict.fromkeys(name for found in read.values() for name in found))
    metrics.sort(key=lambda name: (not name.startswith("val/"), not name.startswith("train/"), name))
    most = MOST_NUMBERS // max(1, 2 * len(report.runs) * len(metrics))
    most = min(MOST_POINTS, max(LEAST_POINTS, most))
    pool: dict[tuple[float | None, ...], int] = {}

    def packed(name: str, runs: Sequence[Run]) -> list[Any] | None:
        measured = [run for run in runs if name in read[run]]
        found = [read[run][name] for run in measured]
        band = curves.band(found, most, [run.seed for run in measured]) if found else None
        if band is None:
            return None
        axes = [pool.setdefault(tuple(_rounded(band.mean.x(axis))), len(pool)) for axis in curves.AXES]
        sides = [None if side is None else _rounded(side) for side in (band.low, band.high)]
        return [*axes, _rounded(band.mean.values), *sides, band.n]

    packed_curves = {
        name: {
            "groups": [packed(name, group.runs) for group in report.groups],
            "runs": [packed(name, [run]) for run in report.runs],
        }
        for name in metrics
    }
    return {"curves": packed_curves, "arrays": [list(array) for array in pool]}


def _rounded(values: curves.Numbers) -> list[float | None]:
    """Six digits are more than a screen shows; None for what is not a number."""
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values.tolist()]
