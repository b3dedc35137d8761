"""Where a result came from: code, packages, hardware. Read without torch's help except for what torch alone knows."""

import hashlib
import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parent
LEDGER = "experiments"  # the folder of published results, which are no code


def git_state() -> tuple[dict[str, Any], str]:
    """What code runs: `({"commit", "dirty", …}, patch)`.

    The commit is the latest that changed more than `experiments/`, whose code is HEAD's. The patch holds every change against
    it, untracked `.py` and `.yaml` files included, and is empty when there is none. Without git or outside a repository the
    first part holds a hash of the package's source instead.
    """
    top = _git(SOURCE, "rev-parse", "--show-toplevel")
    ours = top and _git(SOURCE, "ls-files", "--", ".")  # unpacked inside somebody's repository it is not part of that
    commit = None
    if ours:
        code = ("--", ":(top)", f":(top,exclude){LEDGER}")
        commit = _git(SOURCE, "rev-list", "-1", "HEAD", *code) or _git(SOURCE, "rev-parse", "HEAD")
    if top is None or commit is None:
        return {"commit": None, "source_sha256": _source_hash()}, ""
    patch = _patch(Path(top.strip()))
    dirty = None if patch is None else bool(patch)  # None: git did not say
    return {"commit": commit.strip(), "dirty": dirty}, patch or ""


def is_other_code(
    directory: Path, facts: dict[str, Any], named: dict[str, Any], now: tuple[dict[str, Any], str]
) -> bool:
    """Whether a run computed by other code than `now`, which `git_state` gave, and the modules that a config names.

    Args:
        directory, facts: the run's, and what its run.json says.
    """
    code, changes = now
    patch = directory / "source.patch"
    then_changes = patch.read_text(encoding="utf-8", errors="surrogateescape") if patch.exists() else ""
    then = {key: value for key, value in facts["code"].items() if key not in ("modules", "not_recorded")}
    files = {name: (where["file"], where["sha256"]) for name, where in (facts["code"].get("modules") or {}).items()}
    present = {name: where["sha256"] for name, (where, _) in modules(named).items()}  # those that are imported
    for name, (file, digest) in files.items():
        if name not in present:
            present[name] = hashlib.sha256(Path(file).read_bytes()).hexdigest() if Path(file).is_file() else digest
    other = present != {name: digest for name, (_, digest) in files.items()}
    return bool(then != code or other or changes != then_changes)


def _git(directory: Path, *arguments: str, **environment: str) -> str | None:
    """What git prints, or None where there is no git or it refuses."""
    try:
        done = subprocess.run(
            ["git", "-C", str(directory), *arguments],
            capture_output=True,
            check=True,
            timeout=60,
            env={**{k: v for k, v in os.environ.items() if not k.startswith("GIT_")}, **environment},
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", "surrogateescape")


def _patch(top: Path) -> str | None:
    """The difference to HEAD, made through a copy of the index so that the user's own is not touched."""
    status = _git(top, "status", "--porcelain", "--untracked-files=normal")
    if not status:
        return status
    index = _git(top, "rev-parse", "--git-path", "index")
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "index"
        if index is not None and (top / index.strip()).is_file():
            shutil.copy(top / index.strip(), copy)
        new = _git(top, "ls-files", "--others", "--exclude-standard", "-z", "--", "*.py", "*.yaml") or ""
        names = [name for name in new.split("\0") if name]
        if names:
            _git(top, "add", "--intent-to-add", "--", *names, GIT_INDEX_FILE=str(copy))
        # Whatever the user's git is set to
        plain = ("--no-color", "--no-ext-diff", "--src-prefix=a/", "--dst-prefix=b/")
        code = (".", f":(exclude){LEDGER}")
        return _git(top, "diff", "--binary", *plain, "HEAD", "--", *code, GIT_INDEX_FILE=str(copy))


def _source_hash() -> str:
    digest = hashlib.sha256()
    for path in sorted(SOURCE.rglob("*.py")):
        digest.update(path.relative_to(SOURCE).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def modules(config: dict[str, Any]) -> dict[str, tuple[dict[str, str], str]]:
    """The files of one's own that a config names, `{module: ({"file", "sha256"}, text)}`: what a repetition could not import.

    Modules of installed packages and of `src` are left out; those a named module imports are not followed.
    """
    found = {}
    for target in _targets(config):
        parts = target.split(".")
        loaded = next((m for cut in range(len(parts), 0, -1) if (m := sys.modules.get(".".join(parts[:cut])))), None)
        file = getattr(loaded, "__file__", None)
        if loaded is None or file is None or "site-packages" in file or Path(file).is_relative_to(SOURCE.parent):
            continue
        if loaded.__name__.partition(".")[0] not in sys.stdlib_module_names:
            text = Path(file).read_text(encoding="utf-8", errors="replace")
            digest = hashlib.sha256(Path(file).read_bytes()).hexdigest()
            found[loaded.__name__] = ({"file": file, "sha256": digest}, text)
    return found


def not_recorded(own: Iterable[str]) -> list[str]:
    """The imported files that neither git, nor the patch, nor the modules in `own` hold, sorted; [] without git.

    They are those that git is told to ignore, and those outside the repository, or in its ledger, that only another file
    imports.
    """
    top = _git(SOURCE, "rev-parse", "--show-toplevel")
    if top is None:
        return []
    installed = [
        Path(sys.prefix).resolve(),
        *(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "purelib")),
    ]
    here = Path(top.strip()).resolve()
    inside: list[str] = []
    outside: list[str] = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or "site-packages" in file or "dist-packages" in file or name in own:
            continue
        path = Path(file).resolve()
        if path.is_file() and not any(path.is_relative_to(folder) for folder in installed):
            is_ours = path.is_relative_to(here) and not path.is_relative_to(here / LEDGER)
            (inside if is_ours else outside).append(str(path))
    ignored = _git(SOURCE, "check-ignore", "--", *inside) or "" if inside else ""  # none: git ends with 1
    return sorted({*outside, *ignored.splitlines()})


def _targets(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("_target_"), str):
            yield value["_target_"]
        for item in value.values():
            yield from _targets(item)
    elif isinstance(value, list):
        for item in value:
            yield from _targets(item)


def packages() -> dict[str, str]:
    """Every installed distribution and its version, with Python's own."""
    described = [distribution.metadata for distribution in importlib.metadata.distributions()]  # parsed at each access
    found = {metadata["Name"].lower(): metadata["Version"] for metadata in described if metadata["Name"]}
    return {"python": platform.python_version()} | dict(sorted(found.items()))


def hardware() -> dict[str, Any]:
    """Processor, memory in bytes, accelerators, and the libraries whose choice of kernel changes last bits."""
    import torch

    facts: dict[str, Any] = {
        "host": platform.node(),
        "system": platform.platform(),
        "cpu": _cpu_name(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "num_cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }
    if torch.cuda.is_available():
        facts["gpus"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        facts["cuda"] = torch.version.cuda
        facts["cudnn"] = torch.backends.cudnn.version()
    return facts


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
