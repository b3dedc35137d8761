"""What one update costs beside a bare PyTorch loop: same model, same optimizer flags, same batches.

    python -m benchmarks.update_cost [EPOCHS]

torchlite runs with what a run on a terminal has by default: the bar, metrics, a line every 50 updates with the gradient's
norm, the check for numbers that are not finite, digests, TensorBoard, a schedule, determinism, a checkpoint every ten seconds
and the best weights at the end; the bare loop with none of that. They take turns of a tenth of a second in one process, whose
glibc keeps freed memory, as a run's does. There is no validation part, which a bare loop would have to score as well.
"""

import copy
import io
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from rich.console import Console
from torch import nn
from torch.optim import AdamW

from benchmarks.measure import compared, machine
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

NUM_IMAGES, BATCH_SIZE = 60_000, 128
TURN = 39  # updates, a twelfth of an epoch
FLAGS = {"lr": 1e-3, "weight_decay": 0.05, "fused": True}


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


class Turns:
    """The training part as torchlite's loop reads it; before each turn of that the bare loop takes the same one.

    So the machine is the same for both, however it drifts, and the bare loop's time is not in torchlite's.

    Args:
        wait: ends what torchlite does in the background, which would go on in the bare loop's turn.
    """

    def __init__(self, batches: Any, bare: Iterator[None], deterministic: bool, wait: Callable[[], None]) -> None:
        self.batches, self.bare, self.deterministic, self.wait = batches, bare, deterministic, wait
        self.began: float | None = None
        self.seconds: list[tuple[float, float]] = []  # of each turn: torchlite's, the bare loop's
        self.ends_epoch: list[bool] = []  # whether an epoch ended in it

    def __len__(self) -> int:
        return len(self.batches)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Any]:
        for index, batch in enumerate(self.batches.epoch(epoch, start)):
            if begins_turn(index):
                self.take(ends_epoch=index < TURN)
            yield batch

    def take(self, ends_epoch: bool) -> None:
        """Torchlite's turn is over: the bare loop's next."""
        if self.began is not None:
            self.wait()
            self.seconds.append((time.perf_counter() - self.began, self.bare_seconds))
            self.ends_epoch.append(ends_epoch)
        set_determinism(False)
        began = time.perf_counter()
        next(self.bare, None)
        self.bare_seconds = time.perf_counter() - began
        set_determinism(self.deterministic)
        self.began = time.perf_counter()


def begins_turn(index: int) -> bool:
    """Whether the batch of this number in its epoch is the first of a turn.

    None begins with an epoch, so that a checkpoint is written while its own loop goes on.
    """
    return index % TURN == TURN // 2


def bare_loop(data: ImageData, num_epochs: int, fused: bool = True, grouped: bool = True) -> Iterator[None]:
    """The loop a person would write by hand, built, and then a turn at a time; `grouped` with torchlite's parameter groups,
    so that biases are not decayed, which takes a second call of the fused kernel; the peers have one group."""
    network = model()
    parameters = parameter_groups(network, FLAGS["weight_decay"]) if grouped else network.parameters()
    return turns_of(network, AdamW(parameters, **{**FLAGS, "fused": fused}), data, num_epochs)


def turns_of(network: nn.Module, optimizer: AdamW, data: ImageData, num_epochs: int) -> Iterator[None]:
    """Nothing, before every turn."""
    for epoch in range(num_epochs):
        for index, batch in enumerate(data.train.epoch(epoch)):
            if begins_turn(index):
                yield
            optimizer.zero_grad(set_to_none=True)
            loss = F.cross_entropy(network(batch.images), batch.targets)
            loss.backward()
            optimizer.step()


def bare_cost(data: ImageData, num_epochs: int) -> float:
    """Microseconds per update of the bare loop alone, with one parameter group, as the peers have it."""
    set_determinism(False)
    loop = bare_loop(data, num_epochs, grouped=False)
    started = time.perf_counter()
    for _ in loop:
        pass
    return (time.perf_counter() - started) / (num_epochs * len(data.train)) * 1e6


def beside(data: ImageData, num_epochs: int, bare: Iterator[None], **options: Any) -> Turns:
    """A whole `Trainer.fit` with everything on, in turns with a bare loop; `options` are the trainer's."""
    network, task = model(), Classification(num_classes=10)
    trainer = Trainer(max_epochs=num_epochs, **options)
    trainer.save_pause_seconds *= 2  # half of the time that passes is the bare loop's
    trainer.check_monitor(task.metrics)
    set_determinism(trainer.deterministic)
    optimizer = AdamW(parameter_groups(network, FLAGS["weight_decay"]), **FLAGS)
    total = num_epochs * len(data.train)
    schedule = cosine(optimizer, total_updates=total, updates_per_epoch=len(data.train), warmup_epochs=1.0)
    bar = ProgressBar()
    bar.refresh_seconds *= 2
    hooks = Hooks({NAME: Digests(), "progress_bar": bar, "tensorboard": TensorBoard()})
    turns = Turns(data.train, bare, trainer.deterministic, wait=lambda: trainer.writer.finish())
    next(bare)  # to where the first turn begins
    taking_turns = copy.copy(data)
    taking_turns.train = turns  # type: ignore[assignment]
    with tempfile.TemporaryDirectory() as folder:
        record = Record(Path(folder), {"seed": 0})
        record.console = Console(file=io.StringIO(), force_terminal=True)  # with a bar, therefore
        with record.open():
            trainer.fit(
                model=network,
                task=task,
                data=taking_turns,
                optimizer=optimizer,
                schedule=ScheduleStepper(schedule, trainer.monitor_direction),
                hooks=hooks,
                record=record,
                device=torch.device("cpu"),
            )
            turns.take(ends_epoch=True)
            hooks.close()
    return turns


def report(what: str, turns: Turns) -> None:
    """A line for the turns within epochs, and the mean over all of them, with what an epoch's end brings."""
    each = [(ours / TURN * 1e6, bare / TURN * 1e6) for ours, bare in turns.seconds]
    within = [pair for pair, ends in zip(each, turns.ends_epoch, strict=True) if not ends]
    whole = sum(ours for ours, _ in each) / sum(bare for _, bare in each)
    print(f"{compared(what, within, 'µs', 0)}; {whole:.3f} with the ends of epochs and checkpoints", flush=True)


def main(num_epochs: int = 10) -> None:
    keep_freed_memory()
    data = images()
    print(f"{machine()}, {torch.get_num_threads()} threads")
    print(f"784-256-10 MLP, AdamW, batch {BATCH_SIZE}, {num_epochs} epochs of {len(data.train)} updates; per update:")

    def measured(options: dict[str, Any], bare: dict[str, Any]) -> Turns:
        return beside(data, num_epochs, bare_loop(data, num_epochs, **bare), **options)

    measured({}, {})  # warms up
    report("against the bare loop with the same optimizer", measured({}, {}))
    report("against one that decays biases too, in one group", measured({}, {"grouped": False}))
    report("against one that is not fused", measured({}, {"fused": False}))
    report("with EMA, against the first", measured({"ema_decay": 0.999}, {}))
    report("with clipping, against the first", measured({"clip_grad_norm": 1.0}, {}))


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:2]))
