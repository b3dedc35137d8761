"""`--help`, `--cfg` and tab completion: ours, quick, and without torch."""

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
