"""The words of `python reproduce.py`; what they lead to brings torch, which `--help` does not wait for."""

import argparse
from collections.abc import Sequence

from torchlite import stopping
from torchlite.errors import UserError, refuse

DESCRIPTION = "Repeat a run, a sweep or an entry of experiments/ from its record, and say whether it is the same."
ENDING = """exit codes: 0 identical or equivalent, 3 different or not known, 2 a mistake in what was typed or a record that
is refused, 1 a fault, in one of several runs too, 130 and 143 stopped.  docs/reproduce.md says what each verdict means."""


def main(words: Sequence[str] | None = None) -> int:
    """The exit code of the command."""
    options = parser().parse_args(words)
    try:
        _check(options)
        if options.audit:
            with stopping.loading():
                from torchlite.reproduce import audit

            return audit.main(options)
        with stopping.loading():
            from torchlite.reproduce import repetition

        return repetition.repeat(options)
    except UserError as error:
        return refuse(error)


def _check(options: argparse.Namespace) -> None:
    """Raise UserError for words that make no sense, or none together."""
    for name in ("updates", "num_threads"):
        if (value := getattr(options, name)) is not None and value < 1:
            raise UserError(f"--{name.replace('_', '-')} {value}: give a whole number above 0.")
    if options.tolerance is not None and not options.tolerance >= 0:
        raise UserError(f"--tolerance {options.tolerance}: give a number of 0 or above.")
    if not options.audit and len(options.run) != 1:
        raise UserError("name one run, sweep or entry of experiments/; words of a config go with --audit.")
    of_repetitions = {"--num-threads": options.num_threads, "--tolerance": options.tolerance}
    for word, value in of_repetitions.items():
        if options.audit and value is not None:
            raise UserError(f"{word} has no part in --audit, which tries another number of threads by itself.")


def parser() -> argparse.ArgumentParser:
    """The words that can be typed."""
    made = argparse.ArgumentParser("reproduce.py", description=DESCRIPTION, epilog=ENDING)
    made.add_argument(
        "run", nargs="*", help="a run directory, a sweep or experiments/NAME; with --audit words of train.py"
    )
    made.add_argument("--code", choices=["recorded", "here"], default="recorded", help="run its own code, or this one")
    made.add_argument("--trust-code", action="store_true", help="run the patch and modules that came with the record")
    made.add_argument(
        "--allow-env", action="append", default=[], metavar="NAME", help="let the record use this environment variable"
    )
    made.add_argument("--allow-network", action="store_true", help="let the record download, and read from addresses")
    made.add_argument("--data-dir", help="where the data lies now")
    made.add_argument("--updates", type=int, help="only the first N updates; no final score is compared")
    made.add_argument("--num-threads", type=int, help="compute with N threads, not with as many as recorded")
    made.add_argument(
        "--tolerance", type=float, help="a final score this near is as good, where no spread is published"
    )
    made.add_argument("--json", action="store_true", help="print verdicts as JSON, all else to standard error")
    made.add_argument("--audit", action="store_true", help="run a config twice, and with other workers and threads")
    return made
