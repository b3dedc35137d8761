"""What differs, the run again, the verdict: for each run that was named."""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from torchlite import record
from torchlite.errors import DONE, FINDINGS, UserError, printable
from torchlite.reproduce import code, differences, entry, trust
from torchlite.reproduce.records import Past, found, read
from torchlite.reproduce.rerun import chosen
from torchlite.reproduce.verdict import DIFFERENT, Spread, Verdict, judge, sampling_spread


def repeat(options: argparse.Namespace) -> int:
    """Repeat all that was named; the exit code."""
    for name in ("updates", "num_threads"):
        if (value := getattr(options, name)) is not None and value < 1:
            raise UserError(f"--{name.replace('_', '-')} {value}: give a whole number above 0.")
    runs = [read(directory) for directory in found(options.run[0])]

    def say(text: str) -> None:
        print(printable(text, keep="\n\t"), file=sys.stderr if options.json else sys.stdout)

    verdicts = []
    for number, past in enumerate(runs):
        if len(runs) > 1:
            say(f"{'' if number == 0 else chr(10)}{printable(past.directory.name)}: {number + 1} of {len(runs)}")
        verdict = repeat_one(past, options, say)
        verdicts.append(verdict)
        show(verdict, lambda line: say(printable(line)))
    if len(runs) > 1:
        counts = {v.verdict: sum(o.verdict == v.verdict for o in verdicts) for v in verdicts}
        say("\n" + ", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    if options.json:
        print(json.dumps([verdict.as_json() for verdict in verdicts], indent=2))
    return FINDINGS if any(verdict.verdict == DIFFERENT for verdict in verdicts) else DONE


def repeat_one(past: Past, options: argparse.Namespace, say: Callable[..., None]) -> Verdict:
    """Run one record again and judge it. Raises UserError where it is refused, SystemExit where the run did not end well."""
    here = options.code == "here"
    check_trust(past, options)
    lines = differences.check_environment(past)
    lines += differences.before(past, here, chosen(past, options.num_threads)["num_threads"])
    say(
        f"{past.facts['name']}, {printable(past.directory)}: "
        + ("nothing differs before it starts" if not lines else "what differs:")
    )
    for line in lines:
        say(f"  {line}")
    if (text := code.foreign(past, here)) != "":
        say(f"code that came with the record:\n{text}")
    with code.ready(past, here, options.trust_code) as folders:
        outputs = Path("outputs", "reproduced").resolve()  # one folder deeper than where resume=auto looks
        directory = record.claim(outputs, past.facts["name"], past.facts["identity"])
        ended = start(past, directory, folders, options)
    if ended != DONE:
        if not (directory / "run.json").exists():
            (directory / "result.json").unlink(missing_ok=True)
        print(f"the repetition did not end well (exit code {ended}), so there is no verdict", file=sys.stderr)
        raise SystemExit(ended if ended > 0 else 128 - ended)
    new = read(directory)
    spread = published(past) or tolerated(past, options.tolerance) or sampling_spread(past)
    verdict = judge(past, new, spread, options.updates)
    record.write_json(directory / "verdict.json", {**verdict.as_json(), "differences": lines})
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
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders), "TORCH_FORCE_WEIGHTS_ONLY_LOAD": "1"}
    environment.setdefault("GOMP_SPINCOUNT", "3000")  # as train.py does
    return subprocess.run(words, env=environment, stdout=sys.stderr if options.json else None).returncode


def published(past: Past) -> Spread | None:
    """The spread of the ledger's entry that the run belongs to."""
    return entry.spread(past) if past.directory.parent.name == "runs" else None


def tolerated(past: Past, tolerance: float | None) -> Spread | None:
    value = past.scores.get(past.metric)
    if tolerance is None or value is None:
        return None
    return Spread(value - tolerance, value + tolerance, "--tolerance")


def show(verdict: Verdict, say: Callable[..., None]) -> None:
    """The verdict in words."""
    say(f"{verdict.verdict}: {verdict.compared}")
    if verdict.parting is not None:
        say(f"  parted at {verdict.parting}")
    if verdict.now is not None and verdict.parting is not None:
        say(f"  {verdict.metric} was {verdict.was:.4f}, is {verdict.now:.4f}")
        if verdict.spread is not None:
            low, high = verdict.spread.low, verdict.spread.high
            say(f"  as good from {low:.4f} to {high:.4f}: {verdict.spread.of}")
    say(f"  the repetition is in {verdict.repetition}")
