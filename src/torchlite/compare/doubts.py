"""What makes a comparison less sure than its numbers look, a sentence each."""

import collections
import math
from collections.abc import Sequence

from torchlite.compare.columns import is_number, shown
from torchlite.compare.groups import Group
from torchlite.compare.records import Run


def unlike_runs(runs: Sequence[Run], timed: bool) -> list[str]:
    """What makes runs less alike than their configs say; where seconds decide, their machines too."""
    notes = []
    kinds = {"code": "versions of the code", "torch": "versions of torch", "device": "kinds of device"}
    if timed:
        kinds |= {"hardware": "kinds of hardware, so their seconds do not compare", "num_threads": "numbers of threads"}
    for key, plural in kinds.items():
        counts = collections.Counter(shown(run.values[key]) for run in runs)
        if len(counts) > 1:
            most = ", ".join(f"{value} ({count})" for value, count in counts.most_common(4))
            notes.append(f"The runs are of {len(counts)} {plural}: {most}{', …' if len(counts) > 4 else ''}.")
    return notes


def unlike_images(metric: str, runs: Sequence[Run]) -> list[str]:
    """That not all were scored on the same images; nothing when they were."""

    def images(run: Run) -> str:
        part, split = metric.partition("/")[0], run.data.get("split")
        split = split if isinstance(split, dict) else {}
        held_out = split.get("held_out_sha256") or split.get("val") if part == "val" else None
        limits = (run.values.get(name) for name in ("trainer.limit_eval_batches", "data.eval_batch_size"))
        few, size, whole = (n if is_number(n) else math.inf for n in (*limits, split.get(part)))
        return f"{run.data.get('fingerprint')} {held_out} {min(few * size, whole)}"

    sets = collections.Counter(map(images, runs))
    if len(sets) == 1:
        return []
    choices = collections.Counter(shown(run.options.get("data")) for run in runs)
    how = f"--where data={choices.most_common(1)[0][0]}" if len(choices) > 1 else "--where data.split_seed=…, say"
    return [f"{metric} is of {len(sets)} different sets of images, so none is called best or tested; choose: {how}."]


def chosen_by_test(metric: str, runs: Sequence[Run]) -> list[str]:
    """That there was no validation score to choose by."""
    if metric == runs[0].monitor:
        return []
    missing = f"No run has a {shown(runs[0].monitor)}, so the rows are ranked by the test part"
    return [f"{missing}: {shown(metric)} of the best one looks better than it is."]


def few_seeds(best: Sequence[Group], groups: Sequence[Group], metric: str) -> list[str]:
    """That the best row has a single seed, or fewer than another."""
    counts = {group: len(group.seeds(metric)) for group in groups}
    least, most = min(best, key=lambda group: counts[group], default=None), max(counts.values())
    if least is None or (counts[least] > 1 and counts[least] == most):
        return []
    others = f", others have up to {most}" if counts[least] < most else ""
    return [f"The best row ({least.label}) has {counts[least]} seed(s){others}: it may be best by luck."]
