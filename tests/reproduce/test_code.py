"""The recorded code: a worktree of its commit with its changes, made of nothing that a person has not agreed to."""

import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT, Finished
from tests.repeats import WORDS, change_facts, edit, git, run_script
from tests.runs import the_run

SHORT = ("--updates", "3")
LOSS = "src/torchlite/tasks/classification.py"
OLD, NEW = "return Step(self.losses(logits, batch.targets)", "return Step(0.5 * self.losses(logits, batch.targets)"


def a_run(house: Path, folder: Path) -> Path:
    folder.mkdir()
    done = run_script(house / "train.py", *WORDS, cwd=folder)
    assert done.code == 0, done.text
    return the_run(folder / "outputs")


def repeat(house: Path, run: Path, *words: str) -> Finished:
    return run_script(house / "reproduce.py", str(run), *SHORT, *words, cwd=run.parent)


def worktrees(house: Path) -> int:
    return git(house, "worktree", "list").count("\n")


@pytest.mark.slow
def test_an_older_commit_runs_in_a_worktree(house: Path, tmp_path: Path) -> None:
    run = a_run(house, tmp_path / "given")
    edit(house / LOSS, OLD, NEW)
    git(house, "commit", "-qam", "another loss")
    done = repeat(house, run)
    assert done.code == 0 and "; a worktree of it runs" in done.stdout and "identical: " in done.stdout, done.text
    assert worktrees(house) == 1 and git(house, "status", "--porcelain") == ""
    done = repeat(house, run, "--code", "here")
    assert done.code == 3 and "parted at update 1: loss was" in done.stdout, done.text


@pytest.mark.slow
def test_a_patch_is_shown_and_applied_only_when_trusted(house: Path, tmp_path: Path) -> None:
    edit(house / LOSS, OLD, NEW)
    (house / "src" / "torchlite" / "tasks" / "new.py").write_text("# \x1b]0;steers a terminal\x07 \u202e\n")
    run = a_run(house, tmp_path / "given")
    done = repeat(house, run)  # the present tree has the very same changes: nothing foreign runs
    assert done.code == 0 and "identical: " in done.stdout, done.text
    git(house, "stash", "--include-untracked", "-q")
    done = repeat(house, run)
    assert done.code == 2 and "read them, then add --trust-code" in done.stderr, done.text
    assert f"+        {NEW}" in done.stdout and "\x1b" not in done.stdout and "\u202e" not in done.stdout
    assert "\\x1b]0;steers a terminal" in done.stdout
    done = repeat(house, run, "--trust-code")
    assert done.code == 0 and "identical: " in done.stdout, done.text
    assert worktrees(house) == 1


OUTSIDE = {
    "a file above": "diff --git a/../pwned b/../pwned\nnew file mode 100644\n--- /dev/null\n+++ b/../pwned\n"
    "@@ -0,0 +1 @@\n+x\n",
    "an absolute path": "diff --git a/x b/x\nnew file mode 100644\n--- /dev/null\n+++ b//tmp/pwned\n@@ -0,0 +1 @@\n+x\n",
    "git's own folder": "diff --git a/.git/hooks/x b/.git/hooks/x\nnew file mode 100755\n--- /dev/null\n+++ b/.git/hooks/x\n"
    "@@ -0,0 +1 @@\n+x\n",
    "a link": "diff --git a/out b/out\nnew file mode 120000\n--- /dev/null\n+++ b/out\n@@ -0,0 +1 @@\n+/tmp\n"
    "\\ No newline at end of file\n",
    "a repository within": "diff --git a/m b/m\nnew file mode 160000\n--- /dev/null\n+++ b/m\n@@ -0,0 +1 @@\n"
    "+Subproject commit 0123456789012345678901234567890123456789\n",
    "no patch at all": "rm -rf /\n",
}


@pytest.mark.slow
def test_a_patch_that_reaches_outside_is_refused(house: Path, tmp_path: Path) -> None:
    run = a_run(house, tmp_path / "given")
    before = sorted(path for path in tmp_path.rglob("*") if ".git" not in path.parts and "outputs" not in path.parts)
    for name, text in OUTSIDE.items():
        (run / "source.patch").write_text(text)
        done = repeat(house, run, "--trust-code")
        assert done.code == 2 and "source.patch" in done.stderr and "Traceback" not in done.text, (name, done.text)
        assert not (tmp_path / "pwned").exists() and not Path("/tmp/pwned").exists()
    after = sorted(path for path in tmp_path.rglob("*") if ".git" not in path.parts and "outputs" not in path.parts)
    assert before == after and worktrees(house) == 1


@pytest.mark.slow
def test_code_that_cannot_be_had_is_said(house: Path, tmp_path: Path) -> None:
    """A commit that is not here (as in a shallow clone), on no branch, older than the command, or none at all."""
    run = a_run(house, tmp_path / "given")
    commit = git(house, "rev-parse", "HEAD").strip()
    change_facts(run, lambda facts: facts["code"].update(commit="1" * 40))
    done = repeat(house, run)
    assert (
        done.code == 2
        and "is not in this repository (a shallow clone?)" in done.stderr
        and "--code here" in done.stderr
    )
    tree = git(house, "rev-parse", "HEAD^{tree}").strip()
    loose = git(house, "commit-tree", "-m", "on no branch", "-p", commit, tree).strip()
    change_facts(run, lambda facts: facts["code"].update(commit=loose))
    done = repeat(house, run)
    assert done.code == 2 and "is on no branch" in done.stderr
    git(house, "rm", "-q", "-r", "src/torchlite/reproduce")
    git(house, "commit", "-qm", "as before there was such a command")
    old = git(house, "rev-parse", "HEAD").strip()
    git(house, "revert", "--no-edit", "HEAD")
    change_facts(run, lambda facts: facts["code"].update(commit=old))
    done = repeat(house, run)
    assert done.code == 2 and "is older than reproduce.py" in done.stderr, done.text
    change_facts(run, lambda facts: facts["code"].update(commit=None, source_sha256="x"))
    done = repeat(house, run)
    assert done.code == 2 and "names no commit" in done.stderr
    done = repeat(house, run, "--code", "here")
    assert done.code == 0 and "identical: " in done.stdout, done.text


@pytest.mark.slow
def test_modules_of_ones_own_come_with_the_record(tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "nets.py").write_text(
        "from torch import Tensor, nn\n\n\nclass Net(nn.Module):\n    def __init__(self, num_classes: int) -> None:\n"
        "        super().__init__()\n        self.head = nn.Linear(64, num_classes)\n\n"
        "    def forward(self, images: Tensor) -> Tensor:\n        return self.head(images.flatten(1))\n"
    )
    (tmp_path / "given" / "conf" / "model").mkdir(parents=True)
    (tmp_path / "given" / "conf" / "model" / "net.yaml").write_text("_target_: nets.Net\nnum_classes: 10\n")
    words = ["--config-dir", "conf", "model=net", "trainer.max_epochs=2", "trainer.num_threads=1"]
    done = run_script(ROOT / "train.py", *words, cwd=tmp_path / "given")
    assert done.code == 0, done.text
    run = the_run(tmp_path / "given" / "outputs")
    (tmp_path / "given" / "nets.py").unlink()
    done = run_script(ROOT / "reproduce.py", str(run), cwd=tmp_path)
    assert done.code == 2 and "class Net(nn.Module)" in done.stdout and "--trust-code" in done.stderr
    done = run_script(ROOT / "reproduce.py", str(run), "--trust-code", cwd=tmp_path)
    assert done.code == 0 and "identical: " in done.stdout, done.text


def test_a_commit_is_shared_when_a_branch_of_a_remote_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A branch or a tag of one's own makes it known here, and nowhere else; so does a remote that was not pushed to."""
    from torchlite.reproduce import code

    (tmp_path / "clone").mkdir()
    git(tmp_path, "init", "-q", "--bare", "-b", "main", "remote")
    git(tmp_path / "clone", "init", "-q", "-b", "main")
    git(tmp_path / "clone", "commit", "-qm", "first", "--allow-empty")
    git(tmp_path / "clone", "remote", "add", "origin", "../remote")
    git(tmp_path / "clone", "push", "-q", "origin", "main")
    git(tmp_path / "clone", "commit", "-qm", "second", "--allow-empty")
    git(tmp_path / "clone", "tag", "mine")
    monkeypatch.setattr(code, "ROOT", tmp_path / "clone")
    first, second = git(tmp_path / "clone", "rev-parse", "HEAD~1", "HEAD").split()
    assert [code.is_shared(commit) for commit in (first, second, "1" * 40)] == [True, False, False]
    assert [code.is_known(commit) for commit in (first, second, "1" * 40)] == [True, True, False]


def test_what_the_environment_says_of_git_is_left_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchlite.reproduce import code

    monkeypatch.setenv("GIT_DIR", "/nonexistent")
    assert code._git("rev-parse", "HEAD").returncode == 0
    assert subprocess.run(["git", "rev-parse"], cwd=ROOT, capture_output=True).returncode != 0
