"""`python reproduce.py --audit …`: does a config compute the same twice, and with other workers and threads?"""

import argparse
import copy
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from torchlite import config, machine, run
from torchlite.build import only_logs
from torchlite.config import Composed
from torchlite.errors import DONE, FINDINGS, UserError, printable
from torchlite.record import Record
from torchlite.reproduce import trust
from torchlite.reproduce.records import found, read
from torchlite.reproduce.trace import Mark, Trace, first_difference
from torchlite.stopping import Stopped


def main(options: argparse.Namespace) -> int:
    """Run some updates as they are, again, with loader workers, with another number of threads; the exit code."""
    updates = options.updates or 10
    composed = _composed(options)
    threads = machine.set_threads(composed.config["trainer"]["num_threads"])
    first = marks(composed, updates, threads)
    updates = max(mark.update for mark in first)  # a short run has fewer
    rows: list[dict[str, Any]] = []
    for name, changed, count, must_be_equal in variations(composed, threads):
        difference = first_difference(first, marks(changed, updates, count))
        rows.append({"variation": name, "equal": difference is None, "must_be_equal": must_be_equal})
        rows[-1]["first_difference"] = None if difference is None else asdict(difference)
        if not options.json:
            print(printable(f"{name}: {_story(difference, updates)}"))
    bad = [row["variation"] for row in rows if row["must_be_equal"] and not row["equal"]]
    if options.json:
        print(json.dumps({"updates": updates, "things_compared": len(first), "variations": rows}, indent=2))
    else:
        print(f"{len(first)} checksums of {updates} updates compared: inputs, outputs of modules, gradients, weights")
    if bad:
        print(f"not repeatable: {', '.join(bad)}", file=sys.stderr)
    return FINDINGS if bad else DONE


def _composed(options: argparse.Namespace) -> Composed:
    words, data_dir = options.run, options.data_dir
    if len(words) == 1 and Path(words[0]).is_dir():
        os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"  # as where a record is repeated
        runs = found(words[0])
        if len(runs) > 1:
            raise UserError(f"{words[0]} holds {len(runs)} runs; name one, such as {runs[0]}.")
        return trust.check(read(runs[0]), options, trusted=(), here=True)
    return config.from_words([*words, *([f"data_dir={data_dir}"] if data_dir else [])])


def variations(composed: Composed, threads: int) -> Iterator[tuple[str, Composed, int, bool]]:
    """(name, config, threads, whether it has to be equal) of what is compared with the config as it is."""
    yield "the same again", composed, threads, True
    if {"num_workers", "in_memory"} <= composed.config["data"].keys():
        made = copy.deepcopy(composed.config)
        workers = 1 if made["data"]["num_workers"] == 2 else 2
        made["data"] |= {"num_workers": workers, "in_memory": False}
        yield f"{workers} loader worker{'s'[: workers - 1]}", replace(composed, config=made), threads, True
    other = 1 if threads > 1 else 2
    yield f"{other} thread{'s'[: other - 1]} instead of {threads}", composed, other, False


def marks(composed: Composed, updates: int, threads: int) -> list[Mark]:
    """What the first updates of a config compute."""
    made = copy.deepcopy(composed.config)
    node = {"_target_": "torchlite.reproduce.trace.Trace", "updates": updates}
    others = {name: child for name, child in made["callbacks"].items() if child and not only_logs(child)}
    made["callbacks"] = {"trace": node, **others}
    made["trainer"] |= {"num_threads": threads, "compile": False, "max_minutes": None}  # hooks see no compiled model
    changed = replace(composed, config=made)
    trainer, task = run.check(changed)
    with tempfile.TemporaryDirectory(prefix="torchlite-audit-") as folder:
        record = Record(Path(folder), composed.record)
        record.console = Console(file=io.StringIO())
        try:
            with record.open():
                run.train(changed, trainer, task, record)
        except Stopped:
            pass
    if not Trace.marks:
        raise UserError("nothing was trained, so there is nothing to compare.")
    return Trace.marks


def _story(difference: Mark | None, updates: int) -> str:
    if difference is None:
        return f"equal in all {updates} updates"
    where = f"differs from update {difference.update} on, first in {difference.what}"
    return f"{where} ({difference.kind})"
