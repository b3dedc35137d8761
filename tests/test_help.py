"""`--help`, `--cfg` and tab completion: ours, quick, and without torch."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, Command, Typed


def test_help_is_ours(typed: Typed) -> None:
    done = typed("--help")
    assert done.code == 0
    assert "Train an image classifier" in done.stdout and "powered by Hydra" not in done.stdout.lower()
    for group in ("data", "model", "optimizer", "scheduler", "trainer", "task", "callbacks", "experiment"):
        (line,) = [line for line in done.stdout.splitlines() if line.strip().startswith(f"{group}: ")]
        options = {path.stem for path in (ROOT / "conf" / group).glob("*.yaml")}
        assert set(line.partition(":")[2].replace(" ", "").split(",")) == options
    assert done.stdout.count("python train.py") >= 5


def test_cfg_shows_what_would_run_and_creates_nothing(typed: Typed, tmp_path: Path) -> None:
    done = typed("--cfg", "job", "optimizer=sgd")
    assert done.code == 0 and "torch.optim.SGD" in done.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("word", ["optimizer=", "optimizer.l", "experiment=ci"])
def test_tab_completes(command: Command, word: str) -> None:
    done = command("train.py", "-sc", "query=bash", env={"COMP_LINE": f"train.py {word}"})
    expected = {
        "optimizer=": "optimizer=sgd",
        "optimizer.l": "optimizer.lr=",
        "experiment=ci": "experiment=cifar10_resnet18",
    }
    assert expected[word] in done.stdout, done.text


@pytest.mark.parametrize(
    "typed_words", ["python {}/train.py", "python3 {}/train.py", "python own.py", "python compare.py"]
)
def test_the_tab_key_runs_train_py_and_nothing_else(command: Command, tmp_path: Path, typed_words: str) -> None:
    """Whatever folder it is typed in; a script of somebody's own is not started to ask it for words."""
    script = command("train.py", "-sc", "install=bash")
    assert script.code == 0
    for name in ("own.py", "compare.py"):
        (tmp_path / name).write_text("open('ran', 'w')\n# @hydra.main\n")
    words = typed_words.format(ROOT).replace("python", sys.executable, 1)
    line = (
        f"COMP_LINE='{words} optimizer=sg'; COMP_WORDS=({words} optimizer=sg); COMP_CWORD=2; COMP_POINT=${{#COMP_LINE}}"
    )
    asked = f"{script.stdout}\n{line}\n_torchlite_complete; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash", "-c", asked], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.strip() == ("optimizer=sgd" if "train.py" in words else ""), done.stderr
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("words", [("--help",), ("--cfg", "job"), ("--info", "defaults"), ("-sc", "query=bash")])
def test_none_of_them_imports_torch(command: Command, tmp_path: Path, words: tuple[str, ...]) -> None:
    probe = tmp_path / "probe.py"
    probe.write_text(
        "import atexit, runpy, sys\n"
        "heavy = {'torch', 'torchvision', 'timm'}\n"
        "atexit.register(lambda: print('imported', sorted(heavy & set(sys.modules))))\n"
        f"sys.argv = [{str(ROOT / 'train.py')!r}, *sys.argv[1:]]\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    done = command(str(probe), *words, env={"COMP_LINE": "train.py model="})
    assert done.code == 0 and "imported []" in done.stdout, done.text


@pytest.mark.parametrize("script", ["train.py", "sweep.py status", "compare.py .", "reproduce.py x", "publish.py x y"])
def test_a_folder_that_is_gone_is_said(tmp_path: Path, script: str) -> None:
    (tmp_path / "gone").mkdir()
    line = f"cd gone; rmdir ../gone; exec {sys.executable} {ROOT}/{script}"
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1] == "The folder you are in has been deleted or moved; cd to one that is there."
    assert "Traceback" not in done.stderr
