"""How long the loop waits for a checkpoint of a ResNet-18 with AdamW, beside torch.save and fsync.

python -m benchmarks.checkpointing [ROUNDS]
"""

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.measure import compared, interleave, machine
from torchlite.checkpoint import Writer
from torchlite.models import resnet18


def trained_state() -> dict[str, Any]:
    """Weights and optimizer state after one update: 134 MB."""
    model = resnet18(num_classes=10, in_chans=3)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    model(torch.randn(2, 3, 32, 32)).sum().backward()
    optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}


def main(rounds: int = 9) -> None:
    state = trained_state()
    with tempfile.TemporaryDirectory() as folder:
        writer = Writer()

        def in_the_background() -> float:
            started = time.perf_counter()
            writer.save({Path(folder) / "ours.pt": state})
            waited = time.perf_counter() - started
            writer.wait()
            return waited * 1e3

        def at_once() -> float:
            started = time.perf_counter()
            with open(Path(folder) / "bare.pt", "wb") as file:
                torch.save(state, file)
                file.flush()
                os.fsync(file.fileno())
            return (time.perf_counter() - started) * 1e3

        pairs = interleave(in_the_background, at_once, rounds)
    print(machine())
    print(compared("the loop waits for a checkpoint of ResNet-18 + AdamW (134 MB)", pairs, "ms", 1))


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:2]))
