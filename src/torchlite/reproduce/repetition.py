"""What differs, the run again, the verdict: for each run that was named."""

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torchlite import record
from torchlite.errors import DONE, FAULT, FINDINGS, INTERRUPTED, TERMINATED, WAITING, UserError, printable, refuse
from torchlite.reproduce import code, data, differences, entry, trust
from torchlite.reproduce.records import Past, found, read, without_record
from torchlite.reproduce.rerun import chosen
from torchlite.reproduce.verdict import DIFFERENT, EQUIVALENT, NOT_KNOWN, Spread, Verdict, judge, sampling_spread
from torchlite.stopping import Stopped

FAILED = "failed"  # in place of a verdict, where a repetition did not end well
ENDS_ALL = (INTERRUPTED, TERMINATED, WAITING)  # somebody stopped it


def repeat(options: argparse.Namespace) -> int:
    """Repeat all that was named; the exit code."""
    runs = [read(directory) for directory in found(options.run[0])]
    for past in runs:  # what is refused is refused before anything starts
        check_trust(past, options)
    spreads = [entry.spread(past) or tolerated(past, options.tolerance) or sampling_spread(past) for past in runs]

    def say(text: str) -> None:
        print(printable(text, keep="\n\t"), file=sys.stderr if options.json else sys.stdout)

    for name in without_record(options.run[0]):
        say(f"{name}: left out, since it got no record")
    os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"  # here, where data is read, and for each run
    reports: list[dict[str, Any]] = []
    known: dict[str, str | None] = {}
    for number, (past, spread) in enumerate(zip(runs, spreads, strict=True)):
        if len(runs) > 1:
            say(f"{'' if number == 0 else chr(10)}{printable(past.directory.name)}: {number + 1} of {len(runs)}")
        try:
            outcome = repeat_one(past, spread, options, say, known)
        except UserError as error:
            if not reports:  # nothing was run so far
                raise
            outcome = refuse(error)
        if isinstance(outcome, Verdict):
            show(outcome, lambda line: say(printable(line)))
            reports.append(outcome.as_json())
            continue
        why = f"the repetition did not end well (exit code {outcome}), so there is no verdict"
        print(why, file=sys.stderr)
        if len(runs) == 1 or outcome in ENDS_ALL:
            return outcome
        reports.append({"verdict": FAILED, "why": why, "run": str(past.directory)})
    if len(runs) > 1:
        show_all(reports, say)
    if options.json:
        print(json.dumps(reports, indent=2))
    verdicts = {report["verdict"] for report in reports}
    return FAULT if FAILED in verdicts else FINDINGS if verdicts & {DIFFERENT, NOT_KNOWN} else DONE


def repeat_one(
    past: Past,
    spread: Spread | None,
    options: argparse.Namespace,
    say: Callable[..., None],
    known: dict[str, str | None],
) -> Verdict | int:
    """Run one record again and judge it; an exit code where the run did not end well. Raises UserError where it is refused.

    Args:
        known: fingerprints of data, as of `fingerprint_here`.
    """
    here = options.code == "here"
    if (text := code.foreign(past, here)) != "":
        say(f"code that came with the record:\n{text}")
    code.check(past, here, options.trust_code)  # before data is read, which may take long
    other = differences.check_environment(past)
    other += differences.before(past, here, chosen(past, options.num_threads)["num_threads"])
    fingerprint = data.fingerprint_here(past, options.data_dir, here or code.is_here(past), known)
    lines = data.difference(past.fingerprint, fingerprint) + other
    say(
        f"{past.facts['name']}, {printable(past.directory)}: "
        + ("nothing differs before it starts" if not lines else "what differs:")
    )
    for line in lines:
        say(f"  {line}")
    with code.ready(past, here) as folders:
        outputs = Path("outputs", "reproduced").resolve()  # one folder deeper than where resume=auto looks
        directory = record.claim(outputs, past.facts["name"], past.facts["identity"])
        ended = start(past, directory, folders, options)
    if ended != DONE:
        if not (directory / "run.json").exists():
            (directory / "result.json").unlink(missing_ok=True)
        return ended if ended > 0 else 128 - ended
    new = read(directory)
    read_data = data.difference(past.fingerprint, new.fingerprint)  # by the code that ran, which has the last word
    verdict = judge(past, new, spread, options.updates, read_data + other)
    record.write_json(directory / "verdict.json", verdict.as_json())
    return verdict


def check_trust(past: Past, options: argparse.Namespace) -> None:
    """Raise UserError, with the path of each key at fault, for a record whose config does what it may not."""
    trust.check(past, options, trusted_modules(past), here=options.code == "here" or code.is_here(past))


def trusted_modules(past: Past) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.partition(".")[0] for name in past.modules))


def start(past: Past, directory: Path, folders: list[str], options: argparse.Namespace) -> int:
    """Run the record again in a process of its own, by the code in these folders; its exit code."""
    words = [sys.executable, "-P", "-m", "torchlite.reproduce.rerun", str(past.directory.resolve()), str(directory)]
    for name in ("updates", "num_threads"):
        if getattr(options, name) is not None:
            words += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    if options.data_dir is not None:
        words += ["--data-dir", os.path.abspath(options.data_dir)]
    for name in trusted_modules(past):
        words += ["--trust", name]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    environment.setdefault("GOMP_SPINCOUNT", "3000")  # as train.py does
    process = subprocess.Popen(words, env=environment, stdout=sys.stderr if options.json else None)
    try:
        return process.wait()
    except Stopped as stopped:  # the run saves and stops; Ctrl-C it has got from the terminal itself
        if stopped.code != INTERRUPTED:
            process.terminate()
        process.wait()
        return stopped.code


def tolerated(past: Past, tolerance: float | None) -> Spread | None:
    value = past.scores.get(past.metric)
    if tolerance is None or value is None:
        return None
    return Spread(value - tolerance, value + tolerance, "--tolerance")


def show(verdict: Verdict, say: Callable[..., None]) -> None:
    """The verdict in words."""
    alike = verdict.parting is None and verdict.why is None
    as_good = "the score is as good" if verdict.verdict == EQUIVALENT else "the score is not as good"
    say(f"{verdict.verdict}: {verdict.why or (verdict.compared if alike else as_good)}")
    if not alike:
        say(f"  compared: {verdict.compared}")
    for line in verdict.differences:
        if line.startswith("data: "):
            say(f"  {line}")
    if verdict.parting is not None:
        say(f"  parted {verdict.parting}")
        if verdict.was is not None and verdict.now is not None:
            say(f"  {verdict.metric} was {verdict.was:.4f}, is {verdict.now:.4f}")
            if verdict.spread is not None:
                low, high = verdict.spread.low, verdict.spread.high
                say(f"  as good from {low:.4f} to {high:.4f}: {verdict.spread.of}")
    say(f"  the repetition is in {verdict.repetition}")


def show_all(reports: list[dict[str, Any]], say: Callable[..., None]) -> None:
    """How many came to which verdict, and which came to none."""
    counts = Counter(report["verdict"] for report in reports)
    say("\n" + ", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    for report in reports:
        if report["verdict"] == FAILED:
            say(f"  failed: {Path(report['run']).name}")
