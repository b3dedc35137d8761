"""Scripts of a repository run as typed, records handed on, code that is changed, and a model that does not repeat."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tests.conftest import USER_ENVIRONMENT, Finished
from tests.runs import BASE

WORDS = (*BASE[:2], "trainer.max_epochs=2", "trainer.log_every_updates=10", "trainer.num_threads=1")


def run_script(script: Path, *words: str, cwd: Path, source: Path | None = None, **environment: str) -> Finished:
    """`python SCRIPT WORDS` with the package of the script's own repository."""
    asked = USER_ENVIRONMENT | {"PYTHONPATH": str(source or script.parent / "src")} | environment
    done = subprocess.run(
        [sys.executable, str(script), *words], cwd=cwd, env=asked, capture_output=True, text=True, timeout=300
    )
    return Finished(done.returncode, done.stdout, done.stderr)


def change_facts(run: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Rewrite run.json, as whoever hands a record on could."""
    facts = json.loads((run / "run.json").read_text())
    change(facts)
    (run / "run.json").write_text(json.dumps(facts))


def node(target: str, /, **arguments: Any) -> dict[str, Any]:
    """A node of a config."""
    return {"_target_": target, **arguments}


def put(config: dict[str, Any], path: str, value: Any) -> None:
    """Set a key, and make what it lies in where that is not there."""
    *parents, last = path.split(".")
    for parent in parents:
        config = config[parent] if isinstance(config.get(parent), dict) else config.setdefault(parent, {})
    config[last] = value


def git(folder: Path, *words: str) -> str:
    """What git prints in a folder, as a person of no name."""
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "commit.gpgsign=false"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(
        ["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True, env=environment
    )
    return done.stdout


def edit(file: Path, old: str, new: str) -> None:
    """Change one place of a file, which has to be there once."""
    text = file.read_text()
    assert text.count(old) == 1, f"{file}: {old!r} is there {text.count(old)} times"
    file.write_text(text.replace(old, new))


class Noise(nn.Module):
    """Adds noise of a generator that nobody seeds."""

    def forward(self, images: Tensor) -> Tensor:
        return images + torch.randn(images.shape, generator=torch.Generator().manual_seed(time.time_ns() % 2**63))


class Noisy(nn.Module):
    """A model that does not repeat."""

    def __init__(self, num_classes: int, **others: Any) -> None:
        super().__init__()
        self.flat, self.noise, self.head = nn.Flatten(), Noise(), nn.Linear(64, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.noise(self.flat(images)))
