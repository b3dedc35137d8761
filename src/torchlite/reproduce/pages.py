"""An entry for people: its page, its picture, and the table of all entries."""

import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchlite.errors import UserError
from torchlite.reproduce.records import Past
from torchlite.reproduce.trust import ALWAYS_ALLOWED, environment, needs_network, used

TABLE = """# Experiments

The team's ledger: published results, one folder each, every one of them repeatable from what its folder holds.
Nothing here is ever imported. This page is written by `publish.py`; [docs/reproduce.md](../docs/reproduce.md) tells how.

| entry | question | runs | result |
|---|---|---|---|
"""
DATA_ROOT, CONFIG_DIR = "data.root=DIR", "--config-dir CONF"


def write(folder: Path, facts: dict[str, Any], runs: Sequence[Past]) -> None:
    """README.md and curve.png of an entry."""
    draw(folder / "curve.png", facts, runs)
    (folder / "README.md").write_text(page(folder.name, facts, runs), encoding="utf-8")


def page(name: str, facts: dict[str, Any], runs: Sequence[Past]) -> str:
    """The page of an entry."""
    first, metric = runs[0], facts["metric"]
    monitor = first.facts["config"]["trainer"]["monitor"]
    both = metric != monitor  # without a test part they are the same score
    rows = [
        f"| {_code(group['words'] or 'the defaults')} | {_seeds(group)} | {f'{_validated(group)} | ' if both else ''}"
        f"{_score(group)} | {group['seconds']:.0f} s |"
        for group in facts["groups"]
    ]
    elsewhere = _elsewhere(runs)
    lines = [
        f"# {name}",
        "",
        facts["question"],
        "",
        f"![{_drawn(runs)} by epoch](curve.png)",
        "",
        f"| typed | seeds | {f'{monitor} | ' if both else ''}{metric} | a run takes |",
        "|---|---|---|---|" + "---|" * both,
        *rows,
        "",
        "Where there are several seeds: mean ± standard deviation. To make it, and to repeat it from this folder:",
        "",
        "```",
        *(" ".join([_command(group), *elsewhere]) for group in facts["groups"]),
        repeating(name, runs),
        "```",
        "",
        *(["Put for DIR where the data lies with you.", ""] if DATA_ROOT in elsewhere else []),
        *(["Put for CONF the folder of options that came with the code.", ""] if CONFIG_DIR in elsewhere else []),
        *_made_with(facts, runs),
    ]
    return "\n".join(lines) + "\n"


def repeating(name: str, runs: Sequence[Past]) -> str:
    """What a teammate types to repeat an entry."""
    words = [f"python reproduce.py experiments/{name}", *(f"--allow-env {variable}" for variable in _asked(runs))]
    if DATA_ROOT in _elsewhere(runs):
        words.append("--data-dir DIR")
    if any(needs_network(past) for past in runs):
        words.append("--allow-network")
    if any(past.patch or past.modules for past in runs):
        words.append("--trust-code")
    return " ".join(words)


def _elsewhere(runs: Sequence[Past]) -> list[str]:
    """What has to be typed besides, as it says where something lies, which is another place with everyone."""
    roots = any(word.lstrip("+").startswith("data.root=") for past in runs for word in past.facts["overrides"])
    folders = any(re.search(r"\s(--config-dir|-cd)\b", past.facts.get("command") or "") for past in runs)
    return [word for word, needed in ((DATA_ROOT, roots), (CONFIG_DIR, folders)) if needed]


def _asked(runs: Sequence[Past]) -> list[str]:
    """The environment variables that a person has to allow."""
    return sorted({name for past in runs for name in environment(used(past))} - {*ALWAYS_ALLOWED})


def _made_with(facts: dict[str, Any], runs: Sequence[Past]) -> list[str]:
    first = runs[0].facts
    choices, hardware = first["choices"], first["hardware"]
    where = ", ".join(hardware.get("gpus") or [str(hardware.get("cpu"))])
    data = ", ".join(sorted({past.facts["data"]["fingerprint"][:12] for past in runs}))
    lines = [
        f"- code: commit {', '.join(commit[:12] for commit in facts['commits'])}"
        + (", with the changes in `source.patch`" if any(past.patch for past in runs) else ""),
        f"- data: fingerprint {data}",
        f"- machine: {where} ({hardware.get('cpu_capability')}), {choices['num_threads']} thread"
        f"{'s' if choices['num_threads'] != 1 else ''}, {choices['precision']}, "
        f"torch {first['packages'].get('torch')}",
    ]
    lines += [f"- environment: {', '.join(asked)}"] if (asked := _asked(runs)) else []
    own = sorted({f"`{name}.py`" for past in runs for name in past.modules})
    lines += [f"- files beside the code, in `modules/`: {', '.join(own)}"] if own else []
    unsure = sorted({name for past in runs for name in past.result.get("not_deterministic", [])})
    lines += [f"- no deterministic form: {', '.join(unsure)}"] if unsure else []
    return lines


def _command(group: dict[str, Any]) -> str:
    several = len(group["seeds"]) > 1
    words = ["-m"] * several + [group["words"], f"seed={','.join(map(str, sorted(group['seeds'])))}"]
    return " ".join(["python train.py", *(word for word in words if word)])


def _seeds(group: dict[str, Any]) -> str:
    return ", ".join(map(str, sorted(group["seeds"])))


def _validated(group: dict[str, Any]) -> str:
    return "–" if group["val"] is None else f"{group['val']:.4f}"


def _drawn(runs: Sequence[Past]) -> str:
    """The score of the picture: the monitored one, or without validation the training loss."""
    monitor = str(runs[0].facts["config"]["trainer"]["monitor"])
    return monitor if any(monitor in line for past in runs for line in past.metrics) else "train/loss"


def _score(group: dict[str, Any]) -> str:
    spread = "" if group["standard_deviation"] is None else f" ± {group['standard_deviation']:.4f}"
    return f"{group['mean']:.4f}{spread}"


def _code(text: str) -> str:
    return "`" + text.replace("|", "\\|") + "`"


def write_table(ledger: Path) -> None:
    """README.md of the ledger, from all its entries."""
    rows = []
    for path in sorted(ledger.glob("*/entry.json")):
        facts, name = json.loads(path.read_text(encoding="utf-8")), path.parent.name
        scores = "; ".join(f"{_code(group['words'])} {_score(group)}".removeprefix("`` ") for group in facts["groups"])
        count = sum(len(group["jobs"]) for group in facts["groups"])
        question = facts["question"].replace("|", "\\|").replace("\n", " ")
        rows.append(f"| [{name}]({name}/README.md) | {question} | {count} | {facts['metric']} {scores} |")
    (ledger / "README.md").write_text(TABLE + "".join(f"{row}\n" for row in rows), encoding="utf-8")


def draw(path: Path, facts: dict[str, Any], runs: Sequence[Past]) -> None:
    """A picture of a score by epoch: a line a run, a color a group. Raises UserError without matplotlib."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError as error:
        raise UserError("an entry's picture needs matplotlib; in the clone: pip install -e '.[ledger]'") from error
    figure = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    score = _drawn(runs)
    by_name = {past.directory.name: past for past in runs}
    shared = set.intersection(*(set(shlex.split(group["words"])) for group in facts["groups"]))
    for number, group in enumerate(facts["groups"]):
        for index, job in enumerate(group["jobs"]):
            points = [(line["epoch"], line[score]) for line in by_name[job].metrics if score in line]
            label = _label(group["words"], shared) if index == 0 else None
            axes.plot(*zip(*points, strict=True), color=f"C{number % 10}", alpha=0.8, linewidth=1.2, label=label)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("epoch")
    axes.set_ylabel(score)
    axes.grid(alpha=0.3)
    if len(facts["groups"]) > 1:
        axes.legend(fontsize="small")
    figure.savefig(path, dpi=100, metadata={"Software": None})  # the same bytes for the same numbers


def _label(words: str, shared: set[str]) -> str:
    """What tells a line from the others, as far as a legend has room for it; a dollar would begin a formula."""
    own = " ".join(word for word in shlex.split(words) if word not in shared)
    short = own if len(own) <= 60 else f"{own[:59]}…"
    return (short or "the defaults").replace("$", "\\$")
