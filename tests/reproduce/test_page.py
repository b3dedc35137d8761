"""What docs/reproduce.md and the README show, typed in turn in a clone; and the ledger's quick entries, repeated."""

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.repeats import git, run_script
from tests.test_readme import TOGETHER


@pytest.mark.slow
def test_the_page_on_reproducing(house: Path) -> None:
    """Publishing included: the clone is a commit that its remote has, with nothing changed."""
    git(house.parent, "init", "-q", "--bare", "remote")
    git(house, "remote", "add", "origin", "../remote")
    git(house, "push", "-q", "origin", "main")
    assert len(TOGETHER) >= 6
    for shown in TOGETHER:
        python, script, *words = shlex.split(shown)
        assert python == "python"
        done = run_script(house / script, *words, cwd=house)
        assert done.code == 0, f"{shown}\n{done.text}"
        if "reproduce.py" in shown and "--audit" not in words:
            assert "identical: " in done.stdout, done.text
    table = (house / "experiments" / "README.md").read_text()
    assert "| [perceptron](perceptron/README.md) | Is a perceptron enough for the digits? | 1 | test/acc1" in table


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / "experiments" / "digits_default").is_dir(), reason="the ledger has no entry yet")
def test_make_verify() -> None:
    """C6: every quick entry of the ledger is repeated by the present code; on another processor they may be equivalent."""
    outputs = ROOT / "outputs" / "reproduced"
    before = set(outputs.glob("*/*"))
    words = ["make", "verify"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=900, stdin=subprocess.DEVNULL)
    for run in set(outputs.glob("*/*")) - before:
        shutil.rmtree(run)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "different: " not in done.stdout and ("identical" in done.stdout or "equivalent" in done.stdout)


def test_make_verify_goes_on_after_an_entry_that_differs(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    for folder in ("data/FashionMNIST/raw", "experiments/fashion_mnist_optimizers"):
        (tmp_path / folder).mkdir(parents=True)
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$2"\n[ "$2" != experiments/digits_default ] || exit 3\n')
    python.chmod(0o755)
    words = ["make", "-s", "-o", ".venv/.installed", "verify", f"VENV_PYTHON={python}"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert done.stdout.split() == ["experiments/digits_default", "experiments/fashion_mnist_optimizers"]
    assert done.returncode != 0 and "Error 3" in done.stderr
