"""What of a record goes into the ledger: what a repetition needs, and nothing of the machine or the person."""

import copy
import getpass
import json
import math
import os
import platform
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from torchlite import record
from torchlite.naming import job_name
from torchlite.reproduce import code
from torchlite.reproduce.differences import KERNELS, PACKAGES, environment
from torchlite.reproduce.records import Past, read
from torchlite.reproduce.rerun import WATCH, below, moved

DATA_DIR = "${oc.env:TORCHLITE_DATA,./data}"  # what conf/config.yaml has
FIRST, DIGESTS_KEPT = 16, 100  # of a run's digests: each of the first, and so many over the rest
HARDWARE = ("system", "cpu", "cpu_capability", "num_cores", "gpus", "cuda", "cudnn")
COMPOSE = ("hydra-core", "omegaconf")
NOT_PRIVATE = ("root", "user", "admin", "runner", "localhost", "ubuntu", "debian")
SECRET_NAMES = re.compile(r"TOKEN|SECRET|PASSW|KEY|CREDENTIAL|AUTH", re.I)
SECRETS = re.compile(
    r"AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}"
    r"|xox[abprs]-[\w-]{10,}|-----BEGIN [A-Z ]*PRIVATE KEY-----|[a-z]+://[^\s/:@]+:[^\s/@]+@"
)
PLACES = re.compile(r"(?<![\w.$}/-])/(home|Users|root|mnt|media|data|scratch|work|tmp|var|opt|private|srv|nfs)/[\w.-]+")


def unrepeatable(past: Past) -> Iterator[str]:
    """Why a teammate could not repeat this run, a line each."""
    facts, result = past.facts, past.result
    if result.get("status") != record.FINISHED:
        yield f"it is {result.get('status', 'without a result')}, not finished"
    elif not math.isfinite(past.scores.get(past.metric, math.nan)):
        yield f"it has no {past.metric}"
    if WATCH in facts["config"]["callbacks"]:
        yield "it is a repetition itself; publish the run that it repeats"
    if not facts["data"].get("fingerprint"):
        yield "its data has no fingerprint, so nobody could tell whether theirs is the same"
    if past.commit is None:
        yield "its code is no commit; run it from a clone of the repository"
    elif facts["code"].get("dirty") is None:
        yield "git did not say what its code was"
    elif not code.is_shared(past.commit):
        yield f"its commit {past.commit[:12]} is on no branch, so nobody else has it"
    for name in facts["code"].get("not_recorded") or []:
        yield f"its code imports {name}, which git does not know and no patch holds; git add it, and run again"
    if "not_recorded" not in facts["code"] or not past.digests:
        yield "its record is older than digests.jsonl, by which a repetition is judged; run it again"
    for key in ("weights", "checkpoint_path"):
        if (file := facts["config"]["model"].get(key)) and key in facts["config"]["model"]:
            yield f"it starts from model.{key}={file}, a file that nobody else has"


def copied(past: Past, runs: Path) -> Past:
    """The cleaned record, written to a folder of its own below `runs`."""
    facts = cleaned(past.facts)
    folder = runs / job_name(facts["overrides"], facts["identity"])
    folder.mkdir(parents=True)
    record.write_json(folder / "run.json", facts)
    record.write_json(folder / "result.json", {k: v for k, v in past.result.items() if k not in ("process", "host")})
    text = yaml.safe_dump(facts["config"], sort_keys=False, allow_unicode=True)
    (folder / "config.yaml").write_text(text, encoding="utf-8")
    scores = [line for line in past.metrics if not any(name.startswith("update/") for name in line)]
    _write_lines(folder / "metrics.jsonl", scores)
    _write_lines(folder / "digests.jsonl", thinned(past.digests))
    if past.patch:
        shutil.copyfile(past.directory / "source.patch", folder / "source.patch")
    for name, text in past.modules.items():
        (folder / "modules").mkdir(exist_ok=True)
        (folder / "modules" / f"{name}.py").write_text(text, encoding="utf-8")
    return read(folder)


def cleaned(facts: dict[str, Any]) -> dict[str, Any]:
    """run.json without what only this machine has: folders, names of host and person, packages that compute nothing."""
    facts = copy.deepcopy(facts)
    data, made = facts["data"], facts["config"]
    typed = made["data_dir"] if "${" not in made["data_dir"] else None
    homes = [folder for folder in (data.get("data_dir"), typed) if folder]
    root = made["data"].get("root")
    if isinstance(root, str) and os.path.isabs(root) and not any(below(root, folder) for folder in homes):
        homes.append(root)
    for folder in sorted(homes, key=len, reverse=True):
        made["data"] = moved(made["data"], folder, "${data_dir}")
        if os.path.isabs(folder):
            for key in ("overrides", "command"):
                facts[key] = _reworded(facts.get(key) or "", folder)
    made["data_dir"] = DATA_DIR
    facts["overrides"] = [word for word in facts["overrides"] if not word.startswith("data_dir=")]
    facts["command"] = re.sub(r"\s*\S*data_dir=\S*\$\{data_dir\}\S*", "", facts.get("command") or "")
    known = facts["packages"]
    kept = [name for name in known if name in (*PACKAGES, *COMPOSE) or KERNELS.match(name)]
    own = facts["code"].get("modules") or {}
    modules = {name: {"sha256": module["sha256"]} for name, module in own.items()}
    return {
        **{key: facts[key] for key in ("name", "identity", "options", "overrides", "command", "choices", "config")},
        "data": {key: data.get(key) for key in ("fingerprint", "split", "classes")},
        "code": {**facts["code"], "modules": modules},
        "packages": {name: known[name] for name in kept},
        "hardware": {key: facts["hardware"][key] for key in HARDWARE if key in facts["hardware"]},
    }


def _reworded(value: Any, folder: str) -> Any:
    if isinstance(value, list):
        return [_reworded(word, folder) for word in value]
    return str(value).replace(folder, "${data_dir}")


def thinned(digests: dict[int, dict[str, Any]]) -> list[dict[str, Any]]:
    """The digests that a verdict needs: of the beginning, of all weights, and some of the rest."""
    step = max(1, math.ceil(max(digests, default=0) / DIGESTS_KEPT))
    return [line for update, line in digests.items() if update <= FIRST or "weights" in line or update % step == 0]


def _write_lines(path: Path, lines: Sequence[dict[str, Any]]) -> None:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")


def revealing(folder: Path, runs: Sequence[Past]) -> list[str]:
    """What in an entry tells of the machine or of a person, or is a secret: a line for each place, which does not repeat it."""
    problems = []
    patterns = list(private(runs))
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.suffix == ".png":
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            for what, pattern in patterns:
                if pattern.search(line):
                    problems.append(f"{path.relative_to(folder)}, line {number}: {what}")
    return problems[:12]


def private(runs: Sequence[Past]) -> Iterator[tuple[str, re.Pattern[str]]]:
    """What must not be read by others, in words and as a pattern."""
    yield "a secret", SECRETS
    yield "a folder of this machine", PLACES
    names = [("the name of this machine", platform.node()), ("your user name", _user())]
    names += [("the name of the machine", str(past.facts["hardware"].get("host", ""))) for past in runs]
    for what, name in names:
        if len(name) >= 4 and name.lower() not in NOT_PRIVATE:
            yield what, re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])", re.I)
    home = str(Path.home())
    if home.count("/") > 1:
        yield "your home folder", re.compile(re.escape(home) + r"(?![\w-])")
    asked = {name for past in runs for name in environment(past.facts["config"])}
    for name, value in os.environ.items():
        if len(value) >= 6 and (name in asked or (SECRET_NAMES.search(name) and len(value) >= 8)):
            yield f"the value of the environment variable {name}", re.compile(re.escape(value))


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a process of no known user
        return ""
