"""What one update costs beside a bare PyTorch loop: same model, same optimizer flags, same batches.

    python -m benchmarks.update_cost [ROUNDS]

torchlite runs with what a run has by default: metrics, a line every 50 updates with the gradient's norm, the check for
numbers that are not finite, digests, TensorBoard, a schedule, determinism, a checkpoint after each epoch and the best weights
at the end; the bare loop with none of that. Both compute in a process whose glibc keeps freed memory, as a run's does. There
is no validation part, which a bare loop would have to score as well.
"""

import io
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from rich.console import Console
from torch import nn
from torch.optim import AdamW

from benchmarks.measure import compared, interleave, machine
from torchlite.callbacks import Hooks, ProgressBar, TensorBoard
from torchlite.data.image_data import ImageData
from torchlite.data.preprocess import Preprocess
from torchlite.data.sources import Arrays
from torchlite.digests import NAME, Digests
from torchlite.machine import keep_freed_memory
from torchlite.models import MLP
from torchlite.optim import ScheduleStepper, parameter_groups
from torchlite.optim.schedules import cosine
from torchlite.randomness import seed_everything, set_determinism
from torchlite.record import Record
from torchlite.tasks import Classification
from torchlite.trainer import Trainer

NUM_IMAGES, NUM_EPOCHS, BATCH_SIZE = 60_000, 3, 128
FLAGS = {"lr": 1e-3, "weight_decay": 0.05, "fused": True}


class Cost(NamedTuple):
    """Microseconds per update."""

    everything: float  # from the first batch to the best weights on disk
    epochs: float  # within epochs: no checkpoints, no opening of TensorBoard


def images() -> ImageData:
    """60,000 gray images of 28x28 random pixels in 10 classes, in memory."""
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, (NUM_IMAGES, 28, 28), dtype=np.uint8)
    labels = generator.integers(0, 10, NUM_IMAGES)
    return ImageData(
        train=Arrays(pixels, labels, [str(label) for label in range(10)]),
        test=None,
        num_classes=10,
        channels=1,
        image_size=28,
        batch_size=BATCH_SIZE,
        preprocess=Preprocess(mean=[0.5], std=[0.29]),
        val_fraction=0.0,
        seed=0,
        device="cpu",
    )


def model() -> nn.Module:
    """A 784-256-10 perceptron, the same weights each time."""
    seed_everything(0)
    return MLP(num_classes=10, in_chans=1, image_size=28, widths=[256]).train()


def torchlite_cost(data: ImageData, **options: Any) -> Cost:
    """A whole `Trainer.fit` with everything on; `options` are the trainer's."""
    network, task = model(), Classification(num_classes=10)
    trainer = Trainer(max_epochs=NUM_EPOCHS, **options)
    trainer.check_monitor(task.metrics)
    set_determinism(trainer.deterministic)
    optimizer = AdamW(parameter_groups(network, FLAGS["weight_decay"]), **FLAGS)
    total = NUM_EPOCHS * len(data.train)
    schedule = cosine(optimizer, total_updates=total, updates_per_epoch=len(data.train), warmup_epochs=1.0)
    hooks = Hooks({NAME: Digests(), "progress_bar": ProgressBar(), "tensorboard": TensorBoard()})
    with tempfile.TemporaryDirectory() as folder:
        record = Record(Path(folder), {"seed": 0})
        record.console = Console(file=io.StringIO())  # no terminal, so no bar
        with record.open():
            started = time.perf_counter()
            trainer.fit(
                model=network,
                task=task,
                data=data,
                optimizer=optimizer,
                schedule=ScheduleStepper(schedule, trainer.monitor_direction),
                hooks=hooks,
                record=record,
                device=torch.device("cpu"),
            )
            everything = time.perf_counter() - started
            hooks.close()
        within = sum(line.get("seconds/epoch", 0.0) for line in lines(Path(folder) / "metrics.jsonl"))
    return Cost(everything / total * 1e6, within / total * 1e6)


def lines(path: Path) -> Iterator[dict[str, float]]:
    """The lines of a metrics file."""
    with open(path, encoding="utf-8") as file:
        yield from map(json.loads, file)


def bare_cost(data: ImageData, fused: bool = True, grouped: bool = False) -> Cost:
    """The loop a person would write by hand; `grouped` with torchlite's two parameter groups, which cost it a second kernel."""
    network = model()
    set_determinism(False)
    parameters = parameter_groups(network, FLAGS["weight_decay"]) if grouped else network.parameters()
    optimizer = AdamW(parameters, **{**FLAGS, "fused": fused})
    started = time.perf_counter()
    for epoch in range(NUM_EPOCHS):
        for batch in data.train.epoch(epoch):
            optimizer.zero_grad(set_to_none=True)
            loss = F.cross_entropy(network(batch.images), batch.targets)
            loss.backward()
            optimizer.step()
    each = (time.perf_counter() - started) / (NUM_EPOCHS * len(data.train)) * 1e6
    return Cost(each, each)


def main(rounds: int = 9) -> None:
    keep_freed_memory()
    data = images()
    print(f"{machine()}, {torch.get_num_threads()} threads")
    print(f"784-256-10 MLP, AdamW, batch {BATCH_SIZE}, {NUM_EPOCHS} epochs of {len(data.train)} updates; per update:")
    pairs = interleave(lambda: torchlite_cost(data), lambda: bare_cost(data), rounds)
    print(compared("against the bare loop, both fused", [(a.epochs, b.epochs) for a, b in pairs], "µs", 0))
    print(compared("the same with checkpoints", [(a.everything, b.everything) for a, b in pairs], "µs", 0))
    pairs = interleave(lambda: torchlite_cost(data), lambda: bare_cost(data, grouped=True), max(5, rounds // 2))
    print(
        compared(
            "against a bare loop with the same parameter groups", [(a.epochs, b.epochs) for a, b in pairs], "µs", 0
        )
    )
    for what, options in {"with EMA": {"ema_decay": 0.999}, "with clipping": {"clip_grad_norm": 1.0}}.items():
        run = partial(torchlite_cost, data, **options)
        pairs = interleave(run, lambda: bare_cost(data), max(5, rounds // 2))
        print(compared(what, [(a.epochs, b.epochs) for a, b in pairs], "µs", 0))
    pairs = interleave(lambda: torchlite_cost(data), lambda: bare_cost(data, fused=False), max(5, rounds // 2))
    print(compared("against a bare loop that is not fused", [(a.epochs, b.epochs) for a, b in pairs], "µs", 0))


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:2]))
