"""`python publish.py RUN NAME --question "…"`: the small part of a record that a repetition needs, into the ledger."""

import argparse
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torchlite import provenance, record, stopping
from torchlite.errors import DONE, UserError, refuse

if TYPE_CHECKING:
    from torchlite.reproduce.records import Past

LEDGER = provenance.SOURCE.parents[1] / "experiments"
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,60}")
DESCRIPTION = "Copy what a repetition needs of a finished run, or of a sweep, to experiments/NAME."


def main(words: Sequence[str] | None = None) -> int:
    """The exit code of the command."""
    parser = argparse.ArgumentParser("publish.py", description=DESCRIPTION)
    parser.add_argument("run", help="a run directory, or a sweep with several seeds")
    parser.add_argument("name", help="of the entry: small letters, digits, - and _")
    parser.add_argument("--question", required=True, help="what the entry answers, one sentence")
    parser.add_argument("--ledger", type=Path, default=LEDGER, help="the folder of entries")
    parser.add_argument("--replace", action="store_true", help="an entry of this name that is there")
    options = parser.parse_args(words)
    try:
        entry = publish(options.run, options.name, options.question, options.ledger, options.replace)
    except UserError as error:
        return refuse(error)
    print(f"published {entry}; commit it, and a teammate repeats it as its README.md says")
    return DONE


def publish(run: str, name: str, question: str, ledger: Path, replace: bool) -> Path:
    """The folder of the new entry. Raises UserError for what cannot be repeated, or must not be read by others."""
    with stopping.loading():
        from torchlite.reproduce import cleaning, entry, pages
        from torchlite.reproduce.records import found, read, without_record

    if not NAME.fullmatch(name):
        raise UserError(f"{name}: the name of an entry is made of small letters, digits, - and _, at most 61.")
    if (ledger / name).exists() and not replace:
        raise UserError(f"{ledger / name} is there already; add --replace, or choose another name.")
    runs = [read(directory) for directory in found(run)]
    problems = [f"{past.directory.name}: {problem}" for past in runs for problem in cleaning.unrepeatable(past)]
    problems += [f"{job}: it got no record; type the sweep's command again" for job in without_record(run)]
    problems += twins(runs)
    if problems:
        raise UserError("\n".join(["not published, since it could not be repeated:", *problems]))
    with tempfile.TemporaryDirectory(prefix="torchlite-entry-") as scratch:
        made = Path(scratch) / name
        clean = [cleaning.copied(past, made / "runs") for past in runs]
        facts = {
            "question": question.strip(),
            "metric": clean[0].metric,
            "commits": sorted({past.commit or "" for past in clean}),
            "groups": entry.groups(clean),
        }
        record.write_json(made / "entry.json", facts)
        pages.write(made, facts, clean)
        problems = cleaning.revealing(made, runs)
        if problems:
            raise UserError("\n".join(["not published, since it would show what is nobody's business:", *problems]))
        ledger.mkdir(parents=True, exist_ok=True)
        if (ledger / name).exists():
            shutil.rmtree(ledger / name)
        shutil.copytree(made, ledger / name)
    pages.write_table(ledger)
    return ledger / name


def twins(runs: Sequence["Past"]) -> Iterator[str]:
    """A line for each run that is another one's config and seed once more."""
    first: dict[str, Past] = {}
    for past in runs:
        other = first.setdefault(past.facts["identity"], past)
        if other is not past:
            yield f"{past.directory.name}: it is the same run as {other.directory.name}, again; publish one of them"
