"""The code of a recorded run: a worktree of its commit with its changes, made only of what a person has agreed to."""

import contextlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

from torchlite import provenance
from torchlite.errors import UserError, printable
from torchlite.reproduce.records import Past

RERUN = "src/torchlite/reproduce/rerun.py"
ROOT = provenance.SOURCE.parents[1]


def is_here(past: Past) -> bool:
    """Whether the present code is the recorded one, uncommitted changes included."""
    now, patch = provenance.git_state()
    if past.commit is None:
        return now.get("source_sha256") is not None and now.get("source_sha256") == past.facts["code"].get(
            "source_sha256"
        )
    return now["commit"] == past.commit and patch == past.patch


def foreign(past: Past, here: bool) -> str:
    """Code that came with the record and not with this repository, as text to read; empty when there is none.

    Args:
        here: the present code runs, so that a patch is not used.
    """
    parts = [] if here or not past.patch or is_here(past) else [past.patch]
    parts += [f"--- the record's modules/{name}.py\n{text}" for name, text in past.modules.items()]
    return "\n".join(parts)


@contextlib.contextmanager
def ready(past: Past, here: bool) -> Iterator[list[str]]:
    """The folders to put on Python's path while the run is repeated: its code, and modules of its own. `check` came before."""
    with tempfile.TemporaryDirectory(prefix="torchlite-code-") as scratch:
        own = Path(scratch) / "modules"
        for name, text in past.modules.items():
            path = own.joinpath(*name.split(".")).with_suffix(".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        if here or is_here(past):
            yield [str(ROOT / "src"), str(own)]
            return
        with _worktree(past, Path(scratch) / "code") as tree:
            yield [str(tree / "src"), str(own)]


def check(past: Past, here: bool, trust_code: bool) -> None:
    """Raise UserError where the code of a record cannot be had, or where a person has to agree first."""
    check_modules(past, trust_code)
    if not (here or is_here(past)):
        _check_commit(past, trust_code)


def check_modules(past: Past, trust_code: bool) -> None:
    """Raise UserError where modules of a record's own would run that nobody has agreed to, or hide installed ones."""
    if past.modules and not trust_code:
        raise UserError(
            f"modules/{next(iter(past.modules))}.py came with the record: read it above, then add --trust-code."
        )
    installed = packages_distributions() if past.modules else {}
    for name in past.modules:
        root = name.partition(".")[0]
        if root in sys.stdlib_module_names or root == "torchlite" or root in installed:
            raise UserError(f"modules/{name}.py would stand in for {root} itself; refused.")


def is_shared(commit: str) -> bool:
    """Whether a remote has a commit, as far as is known here: one of its branches that was fetched or pushed holds it."""
    return _is_on(commit, "refs/remotes")


def is_known(commit: str) -> bool:
    """Whether a commit belongs to a branch or tag of this repository, and so is code that its owner has."""
    heads = "refs/heads", "refs/remotes", "refs/tags"
    return _is_on(commit, *heads) or _git("merge-base", "--is-ancestor", commit, "HEAD").returncode == 0


def _is_on(commit: str, *places: str) -> bool:
    return _git("for-each-ref", "--contains", commit, *places).stdout.strip() != ""


def _check_commit(past: Past, trust_code: bool) -> None:
    commit = past.commit
    if commit is None:
        raise UserError("code: the record names no commit, since git was not there; add --code here to run this code.")
    known = _git("cat-file", "-e", f"{commit}^{{commit}}").returncode == 0
    if not known:
        raise UserError(
            f"code: commit {commit[:12]} is not in this repository (a shallow clone?): git fetch it, or add --code here."
        )
    if not (is_known(commit) or trust_code):
        raise UserError(f"code: commit {commit[:12]} is on no branch: look at it with git show, then add --trust-code.")
    if _git("cat-file", "-e", f"{commit}:{RERUN}").returncode != 0:
        raise UserError(
            f"code: commit {commit[:12]} is older than reproduce.py, which cannot start it; add --code here."
        )
    if past.patch and not trust_code:
        raise UserError("code: the run had the uncommitted changes shown above: read them, then add --trust-code.")


@contextlib.contextmanager
def _worktree(past: Past, tree: Path) -> Iterator[Path]:
    _do("worktree", "add", "--detach", "--force", str(tree), str(past.commit))
    try:
        if past.patch:
            _apply(past, tree)
        yield tree
    finally:
        _git("worktree", "remove", "--force", str(tree))
        _git("worktree", "prune")


def _apply(past: Past, tree: Path) -> None:
    """Apply a record's changes in a worktree. Raises UserError for ones that reach outside it."""
    file = (past.directory / "source.patch").resolve()
    listed = subprocess.run(["git", "apply", "--numstat", "-z", str(file)], cwd=tree, capture_output=True)
    if listed.returncode != 0:
        reason = listed.stderr.decode("utf-8", "replace").strip().splitlines()[:1]
        raise UserError(f"source.patch does not apply to the commit: {printable(' '.join(reason))}")
    names = [entry.split("\t")[-1] for entry in listed.stdout.decode("utf-8", "surrogateescape").split("\0") if entry]
    for name in names:
        parts = Path(name).parts
        if os.path.isabs(name) or ".." in parts or ".git" in (part.lower() for part in parts):
            raise UserError(f"source.patch: {printable(name)} lies outside the code; refused.")
    if re.search(r"^(new file mode|new mode|deleted file mode|old mode) 1[26]0000$", past.patch, re.M):
        raise UserError("source.patch makes a link or a repository within; refused.")
    done = subprocess.run(["git", "apply", "--whitespace=nowarn", str(file)], cwd=tree, capture_output=True)
    if done.returncode != 0:
        reason = done.stderr.decode("utf-8", "replace").strip().splitlines()[:1]
        raise UserError(f"source.patch does not apply to the commit: {printable(' '.join(reason))}")


def _git(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, env=environment)


def _do(*words: str) -> None:
    done = _git(*words)
    if done.returncode != 0:
        raise UserError(f"git {words[0]} {words[1]} failed: {done.stderr.strip()}")
