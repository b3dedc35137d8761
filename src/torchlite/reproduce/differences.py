"""What is not as it was when a run was made, the likeliest to change its numbers first."""

import os
import re
from collections.abc import Iterator
from typing import Any

from torchlite import machine, provenance
from torchlite.errors import UserError, printable
from torchlite.reproduce import code
from torchlite.reproduce.records import Past
from torchlite.reproduce.trust import environment, used

# Which packages compute or decode, in the order in which they change results
PACKAGES = ("torch", "torchvision", "timm", "numpy", "pillow", "simplejpeg", "webdataset", "triton", "python")
KERNELS = re.compile(r"(nvidia|cuda|intel|mkl|onednn)")


def before(past: Past, here: bool, num_threads: int) -> list[str]:
    """A line for each difference between then and now.

    Args:
        here: the present code runs, not the recorded one.
        num_threads: with which the repetition computes.
    """
    lines = list(_code(past, here))
    then, now = past.facts["packages"], provenance.packages()
    first, *others = PACKAGES
    lines += _package(first, then, now)
    lines += _machine(past, num_threads)
    kernels = sorted(name for name in {*then, *now} if KERNELS.match(name))
    gone = [name for name in (*others, *kernels) if name in then and name not in now]
    for name in (*others, *kernels):
        lines += () if name in gone else _package(name, then, now)
    if gone:
        lines.append(f"packages: not here: {', '.join(gone)}")
    rest = [name for name in then if name in now and then[name] != now[name] and name not in (*PACKAGES, *kernels)]
    if rest:
        lines.append(f"packages: {len(rest)} more have another version, which compute nothing: {', '.join(rest[:5])}")
    return [printable(line) for line in lines]


def _code(past: Past, here: bool) -> Iterator[str]:
    if code.is_here(past):
        return
    commit = (past.commit or "unknown")[:12]
    changed = " with uncommitted changes" if past.patch else ""
    if not here:
        yield f"code: commit {commit}{changed}; a worktree of it runs"
        return
    now, patch = provenance.git_state()
    yield (
        f"code: was commit {commit}{changed}; this code runs, "
        f"commit {(now['commit'] or 'unknown')[:12]}{' with uncommitted changes' if patch else ''}"
    )


def _package(name: str, then: dict[str, str], now: dict[str, str]) -> Iterator[str]:
    if then.get(name) != now.get(name):
        yield f"packages: {name} was {then.get(name, 'not there')}, is {now.get(name, 'not there')}"


def _machine(past: Past, num_threads: int) -> Iterator[str]:
    choices, then, now = past.facts["choices"], past.facts["hardware"], provenance.hardware()
    device = str(choices.get("device"))
    try:
        found = machine.find_device(device)
    except UserError:
        yield f"hardware: it ran on {device}, which is not here"
    else:
        if choices.get("precision") == "bf16" and not machine.computes_in_bf16(found):
            yield "hardware: it computed in bf16, which takes many times as long here; --updates 100 checks the first ones"
    keys = ["cpu_capability", "cpu"] if device == "cpu" else ["gpus", "cuda", "cudnn", "cpu"]
    for key in keys:
        if then.get(key) != now.get(key):
            yield f"hardware: {key} was {_shown(then.get(key))}, is {_shown(now.get(key))}"
    if choices.get("num_threads") != num_threads:
        yield f"threads: computed with {choices.get('num_threads')}, now with {num_threads}: sums differ in the last bits"


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def check_environment(past: Past) -> list[str]:
    """A line on each variable of the environment that is used."""
    return [f"environment: {name} is used" for name in environment(used(past)) if name in os.environ]
