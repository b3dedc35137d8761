"""What two records have to hold before they can be called the same: that nothing differs is said of what is there."""

from collections.abc import Iterator

from torchlite.digests import FIRST
from torchlite.record import FINISHED
from torchlite.reproduce.cleaning import step_kept
from torchlite.reproduce.parting import STAGES, key
from torchlite.reproduce.records import Past


def lacking(past: Past, new: Past, updates: int | None) -> str | None:
    """The first thing that keeps two runs without a difference from being known to be the same; None where nothing does.

    Args:
        updates: only so many are asked about; None for whole runs.
    """
    return next(_lacks(past, new, updates), None)


def common_updates(past: Past, new: Past, updates: int | None) -> list[int]:
    """The updates with digests in both; 0 stands for the initial weights."""
    return sorted(u for u in past.digests if u in new.digests and (updates is None or u <= updates))


def _lacks(past: Past, new: Past, updates: int | None) -> Iterator[str]:
    both = {"the record": past, "the repetition": new}
    if updates is None:
        for who, run in both.items():
            if run.result.get("status") != FINISHED:
                yield f"{who} is {run.result.get('status')}, not finished"
        yield from _unscored(past, new)
    elif not (past.digests and new.digests):
        yield "there are no digests of single updates to compare"
    if past.digests and new.digests:
        for who, run in both.items():
            yield from _undigested(who, run, updates)
        yield from _unpaired(past, new, updates)


def _undigested(who: str, run: Past, updates: int | None) -> Iterator[str]:
    """What a record's own digests lack: the first updates, what is kept of the rest, and the weights at the end."""
    made, last = run.result.get("updates"), max(run.digests)
    end = due = last if made is None else made
    if updates is not None:
        end, due = updates, updates if updates <= FIRST else max(FIRST, updates - updates % run.every)
        if made is not None and made < updates:
            yield f"{who} has only {made} updates"
    if last < due:
        yield f"digests.jsonl of {who} ends at update {last}, before {end}"
    step = step_kept(run)  # of an entry, too
    for update in (*range(min(FIRST, end) + 1), *range(step, end + 1, step)):
        if update not in run.digests:
            yield f"digests.jsonl of {who} has nothing on update {update}"
    if updates is None and "weights" not in run.digests[last]:
        yield f"digests.jsonl of {who} has no weights of the last update, {last}"


def _unpaired(past: Past, new: Past, updates: int | None) -> Iterator[str]:
    """Digests in one of the two that the other ought to have as well."""
    asked = [update for update in past.digests if updates is None or update <= updates]
    for update in asked:
        due = update <= FIRST or update % new.every == 0 or ("epoch" in past.digests[update] and update != updates)
        if due and update not in new.digests:
            yield f"digests.jsonl of the repetition has nothing on update {update}"
    for update in common_updates(past, new, updates):
        alone = {*past.digests[update]} ^ {*new.digests[update]}
        if update > FIRST and (update % past.every or update % new.every):  # one has but the weights, as an epoch ends
            alone &= {"weights"}
        if update == updates:  # where it stopped, so the epoch did not end
            alone -= {"weights"}
        for quantity in STAGES:
            if quantity in alone:
                yield f"only one of the two has {quantity} in its digest of update {update}"


def _unscored(past: Past, new: Past) -> Iterator[str]:
    """Scores of the repetition that the record lacks."""
    there = {key(line) for line in past.metrics}
    for line in new.metrics:
        if key(line) not in there and not any(name.startswith("update/") for name in line):  # an entry leaves those out
            yield f"metrics.jsonl of the record has nothing on update {line['update']}"
    for part in ("best", "last", "test"):
        if new.result.get(part) and not past.result.get(part):
            yield f"result.json of the record has no {part} score"
    if not there and not past.digests:
        yield "the record has neither digests nor metrics to compare"
