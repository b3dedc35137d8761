"""Every command the documents show is run here, as typed."""

import contextlib
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import ROOT, Command, Typed

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
ELSEWHERE = {  # shown, and run by other means
    "make train": "test_make_train",
    "make test": "this very test run",
    "tensorboard --logdir outputs": "test_tensorboard.py reads what it would show",
    "python /path/to/torchlite/train.py --config-dir conf model=tiny_net model.width=64": "test_the_page_on_adding",
    "python /path/to/torchlite/train.py task._target_=losses.Penalized +callbacks.say._target_=losses.SayBest": (
        "test_the_page_on_adding"
    ),
    "python train.py trainer.max_epoch=3 optimzer=sgd": "test_typos.py",
    "python reproduce.py experiments/digits_default": "reproduce/test_page.py",
    "make verify": "reproduce/test_page.py",
}


def shown_commands(document: Path) -> list[str]:
    """The commands in a document's blocks; one may go on over several lines."""
    commands, inside, begun = [], False, ""
    for line in document.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            inside = not inside
            continue
        line = re.sub(r"\s+#.*", "", line).removeprefix("$ ").strip()
        if inside and (begun or re.match(r"(python|make|tensorboard) ", line)):
            begun += line.removesuffix("\\") + " "
            with contextlib.suppress(ValueError):  # an open quote
                shlex.split(begun)
                if not line.endswith("\\"):
                    commands.append(begun.strip())
                    begun = ""
    return commands


COMMANDS = {document: shown_commands(document) for document in DOCUMENTS}
IN_ORDER = COMMANDS[ROOT / "docs" / "sweeps.md"]  # each needs what those before it left
WITHOUT_DATA = [command for document in DOCUMENTS if document.stem == "data" for command in COMMANDS[document]]
TOGETHER = [command for document in DOCUMENTS if document.stem == "reproduce" for command in COMMANDS[document]]
ALL = [command for commands in COMMANDS.values() for command in commands]
(MY_SETS,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "data.md").read_text(encoding="utf-8"), re.M | re.S)
COMPARISONS = [command for command in ALL if command.startswith("python compare.py ")]
TO_COMPARE = [command for document in DOCUMENTS if document.stem == "compare" for command in COMMANDS[document]][:1]
NOT_ALONE = {*ELSEWHERE, *WITHOUT_DATA, *IN_ORDER, *COMPARISONS, *TO_COMPARE, *TOGETHER}
RUN = list(dict.fromkeys(command for command in ALL if command not in NOT_ALONE))


def test_the_documents_show_commands() -> None:
    assert len(RUN) >= 10 and len(WITHOUT_DATA) >= 8
    assert set(ELSEWHERE) <= set(ALL) and len(COMPARISONS) >= 8


@pytest.mark.parametrize("shown", WITHOUT_DATA)
def test_a_command_on_data_that_is_not_here_is_checked_as_typed(typed: Typed, tmp_path: Path, shown: str) -> None:
    """All but the images themselves, which tests/data makes: `dry_run=true` is added."""
    (tmp_path / "my_sets.py").write_text(MY_SETS)
    words = shlex.split(shown)
    assert words[:2] == ["python", "train.py"]
    done = typed(*words[2:], "dry_run=true")
    assert done.code == 0, done.text


def test_the_set_and_the_transform_of_the_page_on_data_train(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "my_sets.py").write_text(MY_SETS)
    (tmp_path / "cells").mkdir()
    generator = np.random.default_rng(0)
    np.save(tmp_path / "cells" / "images.npy", generator.integers(0, 256, (80, 64, 64), dtype=np.uint8))
    np.save(tmp_path / "cells" / "kinds.npy", np.arange(80) % 4)
    (shown,) = [command for command in WITHOUT_DATA if "my_sets" in command]
    done = typed(*shlex.split(shown)[2:], "trainer=smoke", "data.batch_size=16")
    assert done.code == 0 and "64 train, 16 val images" in done.stdout, done.text


@pytest.fixture
def small_fashion_mnist(tmp_path: Path) -> Path:
    """Files of Fashion-MNIST's format with a few hundred random images, so that a shown command takes seconds."""
    raw = tmp_path / "data" / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    generator = np.random.default_rng(0)
    for part, count in (("train", 400), ("t10k", 40)):
        images = generator.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        header = np.array([0x803, count, 28, 28], dtype=">i4").tobytes()
        (raw / f"{part}-images-idx3-ubyte").write_bytes(header + images.tobytes())
        labels = (np.arange(count) % 10).astype(np.uint8)
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(
            np.array([0x801, count], dtype=">i4").tobytes() + labels.tobytes()
        )
    return tmp_path


@pytest.mark.slow
def test_the_page_on_sweeps_works_from_top_to_bottom(command: Command) -> None:
    for shown in IN_ORDER:
        program, script, *words = shlex.split(shown)
        done = command(script, *words, *(["trainer.max_epochs=6"] if script == "train.py" else []))
        assert program == "python" and done.code == 0, f"{shown}\n{done.text}"


@pytest.mark.slow
@pytest.mark.parametrize("shown", RUN)
def test_a_shown_command_runs_as_typed(typed: Typed, small_fashion_mnist: Path, shown: str) -> None:
    words = shlex.split(shown)
    assert words[:2] == ["python", "train.py"], f"add {shown!r} to the ways a command is tested"
    done = typed(*words[2:])
    assert done.code == 0, done.text


@pytest.mark.slow
def test_comparisons_run_as_typed(typed: Typed, command: Command) -> None:
    """After the sweep their page shows, and a small one in the place of the README's."""
    (sweep,) = TO_COMPARE
    assert typed(*shlex.split(sweep)[2:]).code == 0
    assert typed("-m", "optimizer=sgd,adamw", "seed=0,1", "trainer=smoke", "name=digits-small_cnn").code == 0
    for shown in COMPARISONS:
        done = command(*shlex.split(shown)[1:])
        assert done.code == 0 and "left out" not in done.text, f"{shown}\n{done.text}"


@pytest.mark.slow
def test_the_page_on_adding(command: Command, tmp_path: Path) -> None:
    """A stranger's model: one file and one yaml, from outside the repository, copied from the page."""
    page = (ROOT / "docs" / "adding.md").read_text(encoding="utf-8")
    model, losses = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
    (yaml,) = re.findall(r"^```yaml\n(.*?)^```", page, re.M | re.S)
    (tmp_path / "nets.py").write_text(model)
    (tmp_path / "losses.py").write_text(losses)
    (tmp_path / "conf" / "model").mkdir(parents=True)
    (tmp_path / "conf" / "model" / "tiny_net.yaml").write_text(yaml)
    own = ["task._target_=losses.Penalized", "+callbacks.say._target_=losses.SayBest"]
    done = command("train.py", "trainer=smoke", *own)
    assert done.code == 0 and "after epoch 1 the best is {'update': 17" in done.stdout, done.text
    words = ["--config-dir", "conf", "model=tiny_net", "model.width=64"]
    done = command("train.py", *words, "trainer=smoke")
    assert done.code == 0, done.text
    assert "outputs/digits-tiny_net-smoke/" in done.stdout
    done = command("train.py", *words, "model.widht=64")
    assert (done.code, done.stderr) == (2, "model.widht: no such key in model. Did you mean model.width?\n")


@pytest.mark.slow
def test_make_train(tmp_path: Path) -> None:
    """The result a new user reads first: at least 0.97 on the digits' test part, in under a minute."""
    done = subprocess.run(
        ["make", "train", "ARGS="],  # not those that this test run was given
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    (accuracy,) = re.findall(r"^best: .*test/acc1 ([0-9.]+)", done.stdout, re.M)
    (where,) = re.findall(r"^the whole record is in (\S+)", done.stdout, re.M)
    try:
        assert float(accuracy) >= 0.97
        assert json.loads((ROOT / where / "result.json").read_text())["seconds"] < 60
    finally:
        shutil.rmtree(ROOT / where)
