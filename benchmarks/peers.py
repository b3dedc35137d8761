"""What one update costs in other trainers, beside the same bare loop: pip install -e '.[bench]'.

python -m benchmarks.peers [ROUNDS]

All train the perceptron of update_cost.py with the same fused AdamW on the same batches, and average the loss. Their clocks
run from the first batch on, so that nobody's preparations count, to the end of the last epoch. What they print, bars included,
goes to a file that nobody reads: on a terminal it would stand between our lines, and cost more.
"""

import contextlib
import logging
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch.optim import AdamW
from torch.utils.data import DataLoader, IterableDataset

from benchmarks.measure import compared, interleave, machine
from benchmarks.update_cost import BATCH_SIZE, FLAGS, bare_cost, images, model
from torchlite.data.image_data import ImageData
from torchlite.randomness import set_determinism

NUM_EPOCHS = 3


class Served(IterableDataset):
    """The same batches, as an iterable data set that a trainer loops over."""

    def __init__(self, data: ImageData) -> None:
        self.data = data
        self.epoch = 0
        self.started = 0.0  # when the first batch was asked for

    def __len__(self) -> int:
        return len(self.data.train)

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        self.started = self.started or time.perf_counter()
        self.epoch += 1
        for batch in self.data.train.epoch(self.epoch):
            yield batch.images, batch.targets


def timed(run: Callable[[Served], Any], data: ImageData) -> float:
    """Microseconds per update of something that trains for NUM_EPOCHS."""
    served = Served(data)
    run(served)
    return (time.perf_counter() - served.started) / (NUM_EPOCHS * len(data.train)) * 1e6


@contextlib.contextmanager
def unread() -> Iterator[None]:
    """Send what is printed and logged while this holds where nobody reads it."""
    logging.disable(logging.WARNING)
    with open(os.devnull, "w", encoding="utf-8") as nobody:
        try:
            with contextlib.redirect_stdout(nobody), contextlib.redirect_stderr(nobody):
                yield
        finally:
            logging.disable(logging.NOTSET)


def lightning(data: ImageData, stripped: bool) -> float:
    import lightning as L

    class Module(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = model()

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            loss = F.cross_entropy(self.network(batch[0]), batch[1])
            if not stripped:
                self.log("loss", loss, prog_bar=True)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return AdamW(self.parameters(), **FLAGS)

    off = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False, "enable_model_summary": False}
    with tempfile.TemporaryDirectory() as folder, unread():
        options = off if stripped else {"default_root_dir": folder}
        trainer = L.Trainer(max_epochs=NUM_EPOCHS, accelerator="cpu", **options)
        return timed(lambda served: trainer.fit(Module(), DataLoader(served, batch_size=None)), data)


def accelerate(data: ImageData) -> float:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    network = model()
    network, optimizer = accelerator.prepare(network, AdamW(network.parameters(), **FLAGS))

    def run(served: Served) -> None:
        for _ in range(NUM_EPOCHS):
            for inputs, targets in served:
                with accelerator.accumulate(network):
                    optimizer.zero_grad()
                    accelerator.backward(F.cross_entropy(network(inputs), targets))
                    optimizer.step()

    return timed(run, data)


def ignite(data: ImageData) -> float:
    from ignite.engine import create_supervised_trainer
    from ignite.metrics import RunningAverage

    network = model()
    trainer = create_supervised_trainer(network, AdamW(network.parameters(), **FLAGS), F.cross_entropy)
    RunningAverage(output_transform=lambda loss: loss).attach(trainer, "loss")
    return timed(lambda served: trainer.run(served, max_epochs=NUM_EPOCHS), data)


def timm_style(data: ImageData) -> float:
    """The shape of timm's train.py: an average meter that reads the loss, a schedule stepped per update."""
    from timm.scheduler import CosineLRScheduler
    from timm.utils import AverageMeter

    network = model()
    optimizer = AdamW(network.parameters(), **FLAGS)
    schedule = CosineLRScheduler(optimizer, t_initial=NUM_EPOCHS * len(data.train), t_in_epochs=False)
    meter = AverageMeter()

    def run(served: Served) -> None:
        update = 0
        for _ in range(NUM_EPOCHS):
            for inputs, targets in served:
                loss = F.cross_entropy(network(inputs), targets)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                meter.update(loss.item(), len(targets))
                update += 1
                schedule.step_update(update)

    return timed(run, data)


def main(rounds: int = 5) -> None:
    warnings.simplefilter("ignore")
    set_determinism(False)
    data = images()
    print(f"{machine()}, {torch.get_num_threads()} threads; per update, batch {BATCH_SIZE}:")
    sides = {
        "Lightning, defaults": lambda: lightning(data, stripped=False),
        "Lightning, all off": lambda: lightning(data, stripped=True),
        "Accelerate": lambda: accelerate(data),
        "Ignite": lambda: ignite(data),
        "a loop in timm's style": lambda: timm_style(data),
    }
    for what, run in sides.items():
        try:
            pairs = interleave(run, lambda: bare_cost(data, NUM_EPOCHS), rounds)
        except ImportError as error:
            print(f"{what}: {error}; pip install -e '.[bench]'", flush=True)
            continue
        print(compared(what, pairs, "µs", 0).replace("torchlite", "it"), flush=True)


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:2]))
