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
from torchlite.reproduce.differences import KERNELS, PACKAGES
from torchlite.reproduce.records import Past, read
from torchlite.reproduce.rerun import WATCH, below, moved
from torchlite.reproduce.trust import environment, inside

DATA_DIR = "${oc.env:TORCHLITE_DATA,./data}"  # what conf/config.yaml has
FIRST, DIGESTS_KEPT = 16, 100  # of a run's digests: each of the first, and so many over the rest
HARDWARE = ("system", "cpu", "cpu_capability", "num_cores", "gpus", "cuda", "cudnn")
COMPOSE = ("hydra-core", "omegaconf")
NOT_PRIVATE = ("root", "user", "admin", "runner", "localhost", "ubuntu", "debian")
SECRET_NAMES = re.compile(r"TOKEN|SECRET|PASSW|KEY|CREDENTIAL|AUTH", re.I)
SECRETS = re.compile(
    r"AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}"
    r"|xox[abprs]-[\w-]{10,}|-----BEGIN [A-Z ]*PRIVATE KEY-----|[a-z]+://[^\s/:@]+:[^\s/@]+@|\b[\w.-]+:[^\s/:@]{3,}@[\w-]+\.[\w.-]+"
)
NAMED = r"(?:pass(?:word|wd|phrase)|pwd|secret|token|credential|(?:api|access|secret|private)[_-]?key)[\"']?\s*[:=]\s*"
PASSWORDS = re.compile(  # a quoted value, or one that is no expression, and where the name is a common one has a digit
    NAMED + r"""("[^"\s${]{4,}"|'[^'\s${]{4,}'|(?=[^\s"'${}()\[\],.]*\d)[^\s"'${}()\[\],.]{6,}(?![\w(.\[]))"""
    r"""|(pass(word|wd|phrase)|pwd)\s*[:=]\s*[^\s"'${}()\[\],.]{4,}(?![\w(.\[])""",
    re.I,
)
TYPED_PASSWORDS = re.compile(NAMED + r"""(?!(true|false|null|none|[\d.]+)\b)[^\s"'${}()\[\],]{4,}""", re.I)
ROOTS = (
    "home|Users|Volumes|root|mnt|media|data|datasets?|scratch|work|workspaces?|tmp|var|opt|private|srv|nfs|lustre|gpfs"
)
PLACES = re.compile(rf"((?<![\w.$}})\]/-])/|:/{{3,}})({ROOTS})(/[\w.-]+|(?![\w/.:-]))|\bfile:/+[\w.-]")
ABSOLUTE = re.compile(r"""(^|[\s"'=,:(\[])/[\w.-]+""")
BINARY = re.compile(r"^(GIT binary patch|Binary files .* differ)$")
WEIGHTS = re.compile(r"\.(pt|pth|ckpt|safetensors|onnx|bin|h5|pkl|np[yz])(\.tar)?$")
# Where a slash begins a path and a word stands for itself, as in no code and no sentence
OF_CONFIGS = [("a folder of this machine", ABSOLUTE), ("a password or token", TYPED_PASSWORDS)]
ARCHITECTURES = re.compile(r"x86_64|amd64|aarch64|arm64|ppc64le|riscv64|i686", re.I)


def unrepeatable(past: Past) -> Iterator[str]:
    """Why a teammate could not repeat this run, a line each."""
    facts, result = past.facts, past.result
    if result.get("status") != record.FINISHED:
        yield f"it is {result.get('status', 'without a result')}, not finished"
    elif not math.isfinite(past.scores.get(past.metric, math.nan)):
        yield f"it has no {past.metric}"
    for one in result.get("continued") or []:
        yield f"from update {one['update']} on it was computed with other {', '.join(one['other'])}; run it again in one go"
    if WATCH in facts["config"]["callbacks"]:
        yield "it is a repetition itself; publish the run that it repeats"
    if not facts["data"].get("fingerprint"):
        yield "its data has no fingerprint, so nobody could tell whether theirs is the same"
    if past.commit is None:
        yield "its code is no commit; run it from a clone of the repository"
    elif facts["code"].get("dirty") is None:
        yield "git did not say what its code was"
    elif not code.is_shared(past.commit):
        yield f"its commit {past.commit[:12]} is on no branch of a remote, so nobody else has it; git push, and publish again"
    for name in facts["code"].get("not_recorded") or []:
        yield f"its code imports {name}, which git does not know and no patch holds; git add it, and run again"
    if "not_recorded" not in facts["code"] or not past.digests:
        yield "its record is older than digests.jsonl, by which a repetition is judged; run it again"
    for path, key, value in inside({**facts["config"], "data": {}}):
        named = path == "model.weights" or key == "checkpoint_path"
        if isinstance(value, str) and (named or WEIGHTS.search(value)):
            yield f"it starts from {path}={value}, a file that nobody else has"


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
    _write_lines(folder / "digests.jsonl", thinned(past))
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
    hardware = {key: facts["hardware"][key] for key in HARDWARE if key in facts["hardware"]}
    if "system" in hardware:
        hardware["system"] = _system(str(hardware["system"]))
    return {
        **{key: facts[key] for key in ("name", "identity", "options", "overrides", "command", "choices", "config")},
        "data": {key: data.get(key) for key in ("fingerprint", "split", "classes")},
        "code": {**facts["code"], "modules": modules},
        "packages": {name: known[name] for name in kept},
        "hardware": hardware,
    }


def _system(platform: str) -> str:
    """`Linux x86_64` of `Linux-6.1.0-18-amd64-x86_64-with-glibc2.36`: a kernel's build may tell whose machine it is."""
    found = ARCHITECTURES.findall(platform)
    return " ".join([re.split(r"\W", platform)[0], *found[-1:]])


def _reworded(value: Any, folder: str) -> Any:
    if isinstance(value, list):
        return [_reworded(word, folder) for word in value]
    return re.sub(re.escape(folder) + r"(?![\w.-])", "${data_dir}", str(value))


def thinned(past: Past) -> list[dict[str, Any]]:
    """The digests that a verdict needs: of the beginning, of all weights, and some of the rest."""
    step = step_kept(past)
    return [line for update, line in past.digests.items() if update <= FIRST or "weights" in line or update % step == 0]


def step_kept(past: Past) -> int:
    """An entry keeps the digests of every so-manyth update after the first, all of which the run has."""
    return past.every * max(1, math.ceil(max(past.digests, default=0) / past.every / DIGESTS_KEPT))


def _write_lines(path: Path, lines: Sequence[dict[str, Any]]) -> None:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")


def revealing(folder: Path, runs: Sequence[Past]) -> list[str]:
    """What in an entry tells of the machine or of a person, or is a secret: a line for each place, which does not repeat it."""
    problems = []
    patterns = list(private(runs))
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.suffix == ".png":
            continue
        here = patterns + ([] if path.suffix in (".patch", ".py", ".md") else OF_CONFIGS)
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            where = f"{path.relative_to(folder)}, line {number}"
            problems += [f"{where}: {what}" for what, pattern in here if pattern.search(line)]
    return list(dict.fromkeys(problems))[:12]


def private(runs: Sequence[Past]) -> Iterator[tuple[str, re.Pattern[str]]]:
    """What must not be read by others, in words and as a pattern."""
    yield "a secret", SECRETS
    yield "a password or token", PASSWORDS
    yield "a folder of this machine", PLACES
    yield "a binary file, which nobody can read before it is trusted; commit it", BINARY
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
