"""The command line of compare.py."""

import argparse
import json
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from torchlite import stopping
from torchlite.errors import DONE, FAULT, UserError, printable, refuse

EXAMPLES = """examples:
  python compare.py outputs/NAME                                       every run below, seeds folded
  python compare.py outputs/NAME --baseline 'optimizer=sgd optimizer.lr=0.1'
  python compare.py 'outputs/digits*' --where model=mlp --by optimizer --metric test/acc1
  python compare.py outputs/NAME --html page.html --png figure.png --csv rows.csv
  python compare.py --diff outputs/NAME/RUN outputs/NAME/OTHER

exit codes: 0 done; 1 a fault; 2 a mistake in what was typed, or nothing to compare"""


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="compare.py",
        description="Which settings are better, and by how much more than chance: seeds are folded.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = made.add_argument
    add("runs", nargs="*", metavar="RUN", help="run directories, sweeps, ledger entries, folders of these, or globs")
    add(
        "--metric",
        metavar="NAME",
        help="the score to compare by; default: what the runs monitor, of the validation part",
    )
    add(
        "--better",
        choices=("max", "min"),
        help="which direction is better; default: as recorded for what the runs monitor, by name for losses and accuracies",
    )
    add(
        "--where",
        action="append",
        default=[],
        metavar="COND",
        help="only runs with key=value (also a,b != < <= > >=)",
    )
    add(
        "--by",
        default="",
        metavar="KEYS",
        help="one row a value of these keys, as optimizer,model; else a setting",
    )
    add(
        "--baseline",
        metavar="WHICH",
        help="test every row against this one: a run of it, or conditions: 'model=mlp seed=0'",
    )
    add("--sort", metavar="KEY", help="sort by a column, a score or n; default: best first")
    add("--reverse", action="store_true", help="sort the other way round")
    add("--csv", metavar="FILE", help="write the rows; - for the terminal, in place of the table")
    add("--json", metavar="FILE", help="write everything; - for the terminal")
    add("--png", metavar="FILE", help="draw curves and intervals, one column of a paper wide")
    add("--pdf", metavar="FILE", help="the same")
    add(
        "--x",
        choices=("updates", "epochs", "seconds"),
        default="updates",
        help="what the curves of --png and --pdf run over",
    )
    add("--html", metavar="FILE", help="write one page that needs no network: table, curves, every config")
    add("--diff", nargs=2, metavar=("A", "B"), help="what differs between two runs, and the update at which they part")
    return made


def main(arguments: Sequence[str]) -> int:
    """Run compare.py; the exit code."""
    asked = parser().parse_args(arguments)
    try:
        return _diff(asked) if asked.diff else _compare(asked)
    except UserError as error:
        return refuse(error)
    except BrokenPipeError:  # nobody reads any more (`| head`)
        sys.stderr.close()
        return DONE
    except Exception:
        traceback.print_exc()
        return FAULT


def _diff(asked: argparse.Namespace) -> int:
    with stopping.loading():
        from torchlite.compare import difference

    if asked.runs:
        raise UserError(f"--diff takes two runs and no more; leave out {' '.join(asked.runs)}.")
    found = difference.difference(*asked.diff)
    if asked.json:
        _write(asked.json, lambda: json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    if asked.json != "-":
        sys.stdout.write(difference.as_text(found))
    return DONE


def _compare(asked: argparse.Namespace) -> int:
    if not asked.runs:
        raise UserError("compare.py: name what to compare: python compare.py outputs/NAME (or --help).")
    with stopping.loading():
        from rich.console import Console

        from torchlite.compare import table
        from torchlite.compare.report import Asked, NothingToCompare, report

    by = [key.strip() for key in asked.by.split(",") if key.strip()]
    wanted = Asked(asked.where, by, asked.metric, asked.better, asked.baseline, asked.sort, asked.reverse)
    try:
        found = report(asked.runs, wanted)
    except NothingToCompare as error:
        table.show_unfit(error.unfit, Console(stderr=True, highlight=False))
        raise
    written = [path for path in (asked.csv, asked.json) if path]
    if asked.csv:
        _write(asked.csv, lambda: table.as_csv(found))
    if asked.json:
        _write(asked.json, lambda: table.as_json(found))
    if "-" not in written:
        table.show(found, Console(highlight=False))
    elif asked.csv == "-":  # which has no place for them, as JSON has
        table.show_notes(found, Console(stderr=True, highlight=False))
    for name in (asked.png, asked.pdf):
        if name:
            _draw(found, name, ".png" if name is asked.png else ".pdf", asked.x)
    if asked.html:
        from torchlite.compare import page

        _write(asked.html, lambda: page.page(found))
    for path in (asked.csv, asked.json, asked.png, asked.pdf, asked.html):
        if path and path != "-":
            print(printable(f"wrote {path}"), file=sys.stderr)
    return DONE


def _draw(found: object, name: str, suffix: str, axis: str) -> None:
    from torchlite.compare import figure

    path = Path(name)
    if path.suffix.lower() != suffix:
        raise UserError(f"--{suffix[1:]} {name}: the name has to end in {suffix}.")
    try:
        notes = figure.draw(found, path, axis)  # type: ignore[arg-type]
    except OSError as error:
        raise UserError(f"{name} cannot be written: {error.strerror}.") from error
    for note in notes:
        print(printable(note), file=sys.stderr)


def _write(name: str, text: Callable[[], str]) -> None:
    made = text().encode("utf-8", "backslashreplace").decode("utf-8")  # a name may hold half a character
    if name == "-":
        sys.stdout.write(made)
        return
    try:
        Path(name).write_text(made, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{name} cannot be written: {error.strerror}.") from error
