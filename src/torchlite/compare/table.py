"""A report as a table on the terminal, as CSV and as JSON."""

import csv
import io
import json
import math
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from torchlite.compare.columns import shown
from torchlite.compare.finding import Unfit
from torchlite.compare.groups import Group
from torchlite.compare.report import Report, explained
from torchlite.compare.statistics import ALPHA, CONFIDENCE, POWER, Mean

LINES_SHOWN = 40  # of runs left out; --json has all
LONGEST = 48  # characters of a value on the terminal


def number(value: float) -> str:
    """Four significant digits, as people write them: 0.9826, 12.3, 1.2e-05."""
    return f"{value:.4g}" if value == 0 or 1e-4 <= abs(value) < 1e6 else f"{value:.2e}"


def with_interval(mean: Mean) -> str:
    """`0.9826 ± 0.0041`: to the second digit of the half-width; a mean of one has four digits and no interval."""
    half = mean.half_width
    if half is None or not math.isfinite(half):
        return number(mean.mean)
    if half == 0:
        return f"{number(mean.mean)} ± 0"
    digits = 1 - math.floor(math.log10(half))
    if digits > 8:
        return f"{number(mean.mean)} ± {half:.1e}"
    digits = max(0, digits)
    return f"{mean.mean:.{digits}f} ± {half:.{digits}f}"


def verdict(group: Group, report: Report) -> str:
    """What the test against the baseline says, in a word or two."""
    test = group.paired
    if group is report.baseline:
        return "baseline"
    if test is None:
        return ""
    if test.p is None:
        return f"not tested: {test.why_not}"
    said = "no difference shown"
    if test.claimed:
        said = "better" if (test.difference.mean < 0) == report.less_is_better else "worse"
    whole = min(len(one.seeds(report.metric)) for one in (group, report.baseline) if one is not None)
    return said if test.difference.n == whole else f"{said} on {test.difference.n} common seeds"


def show(report: Report, console: Console) -> None:
    """Print the table, what its numbers are, notes, and the runs left out, a line each."""
    tables = [_table(report)]
    if _width(tables[0], console) > console.width and console.is_terminal and report.baseline is not None:
        tables = [_table(report, tests=False), _table(report, scores=False)]  # rather than squeezed
    for table in tables:
        # A file, a pipe or a small terminal gets whole lines
        console.width = max(console.width, _width(table, console))
        console.print(table)
    for line in explained(report):
        console.out(line, highlight=False)
    show_notes(report, console)


def show_notes(report: Report, console: Console) -> None:
    """What has to be said about the runs, and those that were left out, a line each."""
    for line in report.notes:
        console.out(line, highlight=False)
    show_unfit(report.unfit, console)


def show_unfit(unfit: list[Unfit], console: Console) -> None:
    """The directories that were left out, a line each."""
    if unfit:
        console.out(f"left out ({len(unfit)}):", highlight=False)
    for one in unfit[:LINES_SHOWN]:
        console.out(f"  {shown(str(one.directory))}: {shown(one.reason)}", highlight=False)
    if len(unfit) > LINES_SHOWN:
        console.out(f"  … and {len(unfit) - LINES_SHOWN} more; --json lists them all", highlight=False)


def _width(table: Table, console: Console) -> int:
    return console.measure(table, options=console.options.update(width=10_000)).maximum


def _table(report: Report, scores: bool = True, tests: bool = True) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    names = report.columns or ["run"]
    table.add_column("")
    for name in names:
        table.add_column(Text(shown(name)), overflow="fold")
    metrics = [report.metric, *report.beside] if scores else []
    tests = tests and report.baseline is not None
    for name in ["n", *metrics]:
        table.add_column(Text(shown(name)), justify="right", no_wrap=True)
    if tests:
        table.add_column("difference", justify="right", no_wrap=True)
        table.add_column("p (Holm)", justify="right", no_wrap=True)
        table.add_column("")
        table.add_column("more seeds", justify="right")
    for group in report.groups:
        best = group in report.best
        values = [shown(group.values[key]) for key in report.columns] or [group.label]
        cells = ["*" if best else "", *(v if len(v) <= LONGEST else v[: LONGEST - 1] + "…" for v in values)]
        cells.append(group.finished(report.metric) or str(len(group.seeds(report.metric))))
        for metric in metrics:
            mean = group.mean(metric)
            cells.append("" if mean is None else number(mean.mean) if metric == "seconds" else with_interval(mean))
        if tests:
            cells += comparison(group, report)
        table.add_row(*map(Text, cells), style="bold green" if best else None)
    return table


def comparison(group: Group, report: Report) -> list[str]:
    test = group.paired
    if test is None or test.difference.n == 0:
        return ["", "", verdict(group, report), ""]
    sign = "+" if test.difference.mean > 0 else ""
    p = "" if test.p_holm is None else "<0.0001" if test.p_holm < 1e-4 else f"{test.p_holm:.4f}"
    more = ""
    if test.p_holm is not None and not test.claimed:
        more = ">1000" if test.more_seeds is None else str(test.more_seeds)
    return [sign + with_interval(test.difference), p, verdict(group, report), more]


def as_csv(report: Report) -> str:
    """A line a row of the table, with every number in full."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    scores = [report.metric, *report.beside]
    numbers = [f"{name} {what}" for name in scores for what in ("mean", "low", "high")]
    tests = ["difference", "difference low", "difference high", "common seeds", "p", "p_holm", "verdict", "more seeds"]
    tested = report.baseline is not None
    writer.writerow(
        [*report.columns, "n", "seeds unfinished", *numbers, "best", *(tests if tested else []), "directories"]
    )
    for group in report.groups:
        row: list[Any] = [shown(group.values[key]) for key in report.columns]
        row += [len(group.seeds(report.metric)), len(group.unfinished)]
        for name in scores:
            mean = group.mean(name)
            row += ["", "", ""] if mean is None else [mean.mean, mean.low, mean.high]
        row.append("best" if group in report.best else "")
        if tested:
            row += list(_tested(group, report).values())
        writer.writerow([*row, ";".join(str(run.directory) for run in group.runs)])
    return text.getvalue()


def _tested(group: Group, report: Report) -> dict[str, Any]:
    test = group.paired
    names = ("difference", "low", "high", "n", "p", "p_holm", "verdict", "more_seeds")
    if test is None:
        return dict.fromkeys(names) | {"verdict": verdict(group, report)}
    known = None if test.difference.n == 0 else test.difference.mean
    values = (known, test.difference.low, test.difference.high, test.difference.n, test.p, test.p_holm)
    return dict(zip(names, (*values, verdict(group, report), test.more_seeds), strict=True))


def as_mapping(report: Report) -> dict[str, Any]:
    """Everything in a report, for programs."""
    return {
        "metric": report.metric,
        "better": "min" if report.less_is_better else "max",
        "confidence": CONFIDENCE,
        "test": None
        if report.baseline is None
        else {
            "baseline": report.baseline.label,
            "name": "two-sided paired t-test on common seeds",
            "correction": "Holm",
            "comparisons": report.num_tests,
            "corrected_for": report.family,
            "alpha": ALPHA,
            "power_for_more_seeds": POWER,
        },
        "columns": report.columns,
        "rows": [_row(group, report) for group in report.groups],
        "notes": report.notes,
        "left_out": [{"directory": str(one.directory), "reason": one.reason} for one in report.unfit],
    }


def _row(group: Group, report: Report) -> dict[str, Any]:
    scores = {}
    for name in [report.metric, *report.beside]:
        mean = group.mean(name)
        if mean is not None:
            scores[name] = {"n": mean.n, "mean": mean.mean, "low": mean.low, "high": mean.high}
    return {
        "label": group.label,
        "values": group.values,
        "scores": scores,
        "seeds": {seed: score for seed, score in group.seeds(report.metric).items()},
        "seeds_unfinished": sorted(group.unfinished),
        "best": group in report.best,
        "against_baseline": _tested(group, report) if report.baseline is not None else None,
        "runs": [str(run.directory) for run in group.runs],
    }


def as_json(report: Report) -> str:
    return json.dumps(as_mapping(report), indent=2, ensure_ascii=False) + "\n"
