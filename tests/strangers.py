"""What somebody else might write in a file of their own."""

import os
import signal
import time
from typing import Any

import torch
from torch import Tensor, nn

from torchlite.callbacks import Callback
from torchlite.tasks import Classification, Step


class Net(nn.Module):
    """A model from outside."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.head = nn.LazyLinear(num_classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(images.flatten(1))


class Linear(nn.Module):
    """One linear layer over the pixels."""

    def __init__(self, num_classes: int, num_pixels: int = 64) -> None:
        super().__init__()
        self.head = nn.Linear(num_pixels, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(images.flatten(1))


class TwoLosses(Classification):
    """Cross-entropy plus a weighted penalty on large logits: one method replaced."""

    def __init__(self, num_classes: int, penalty_weight: float = 0.01, **others: Any) -> None:
        super().__init__(num_classes, **others)
        self.penalty_weight = penalty_weight

    def training_step(self, model: nn.Module, batch: Any) -> Step:
        logits = model(batch.images)
        penalty = logits.square().mean(dim=1)
        losses = self.losses(logits, batch.targets) + self.penalty_weight * penalty
        return Step(losses, {"penalty": penalty.detach()})


def make_task() -> Classification:
    return Classification(num_classes=10)


class Spy(Callback):
    """Writes down the hooks in the order they were called."""

    def __init__(self, file: str = "hooks.txt") -> None:
        self.file = file

    def on_fit_begin(self, trainer: Any) -> None:
        self.say("fit begin")

    def on_epoch_begin(self, trainer: Any) -> None:
        self.say(f"epoch begin {trainer.progress.epoch}")

    def on_validation_end(self, trainer: Any, scores: dict[str, float]) -> None:
        self.say(f"validation {sorted(scores)}")

    def on_epoch_end(self, trainer: Any) -> None:
        self.say(f"epoch end {trainer.progress.epoch}")

    def on_fit_end(self, trainer: Any, scores: dict[str, float]) -> None:
        self.say(f"fit end {sorted(scores)}")

    def say(self, what: str) -> None:
        with open(self.file, "a", encoding="utf-8") as file:
            file.write(what + "\n")


class Explodes(Callback):
    """A fault in a callback, at a given update."""

    def __init__(self, update: int = 3, message: str = "boom") -> None:
        self.update = update
        self.message = message

    def on_batch_end(self, trainer: Any, batch: Any) -> None:
        if trainer.progress.update == self.update:
            raise RuntimeError(self.message)


class Ruin(Callback):
    """Sets every weight to zero before an epoch."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_epoch_begin(self, trainer: Any) -> None:
        if trainer.progress.epoch == self.epoch:
            with torch.no_grad():
                for parameter in trainer.model.parameters():
                    parameter.zero_()
            trainer.optimizer.state.clear()
            for group in trainer.optimizer.param_groups:
                group["lr"] = 0.0


class Kinds(Callback):
    """Writes down what the words became."""

    def on_fit_begin(self, trainer: Any) -> None:
        schedule = trainer.schedule.scheduler
        plain = type(trainer.optimizer) is torch.optim.SGD and isinstance(
            schedule, torch.optim.lr_scheduler.LRScheduler
        )
        kinds = [type(thing).__name__ for thing in (trainer.optimizer, trainer.model, schedule)]
        with open("kinds.txt", "w", encoding="utf-8") as file:
            file.write(" ".join([*kinds, str(plain)]))


class Poison(Callback):
    """Makes the weights' gradient infinite from one update on."""

    def __init__(self, update: int = 5) -> None:
        self.update = update

    def on_batch_begin(self, trainer: Any, batch: Any) -> None:
        if trainer.progress.update + 1 == self.update:
            batch.images.fill_(torch.inf)


class Signal(Callback):
    """Sends this process the signal SIGNAL when update STOP_AT has been applied; both from the environment."""

    def on_batch_end(self, trainer: Any, batch: Any) -> None:
        if trainer.progress.update == int(os.environ.get("STOP_AT", "-1")):
            os.kill(os.getpid(), int(os.environ.get("SIGNAL", signal.SIGTERM)))


class SignalSweep(Callback):
    """The first of a sweep's jobs to come to `hook` sends the sweep the signal SIGNAL, and waits for what becomes of it."""

    def __init__(self, hook: str) -> None:
        self.hook = hook
        self.send("__init__")

    def on_fit_begin(self, trainer: Any) -> None:
        self.send("on_fit_begin")

    def on_fit_end(self, trainer: Any, scores: dict[str, float]) -> None:
        self.send("on_fit_end")

    def send(self, where: str) -> None:
        if where == self.hook and not os.path.exists("sent"):
            with open("sent", "x", encoding="utf-8"):
                os.kill(int(os.environ["SWEEP"]), int(os.environ["SIGNAL"]))
            time.sleep(60)


class Ids(Callback):
    """Writes down which samples each update used."""

    def __init__(self, file: str = "ids.txt") -> None:
        self.file = file

    def on_batch_begin(self, trainer: Any, batch: Any) -> None:
        with open(self.file, "a", encoding="utf-8") as file:
            file.write(f"{trainer.progress.update + 1} {batch.ids.tolist()}\n")


class Hungry(Callback):
    """Runs out of memory whenever more than `limit` samples are pushed through at once."""

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def on_fit_begin(self, trainer: Any) -> None:
        step = trainer.task.training_step

        def limited(model: nn.Module, batch: Any) -> Step:
            if len(batch.ids) > self.limit:
                raise torch.OutOfMemoryError("simulated")
            return step(model, batch)

        trainer.task.training_step = limited


class Huge(Callback):
    """Blows the weights up at the end of an epoch's updates, before they are scored."""

    def on_validation_begin(self, trainer: Any) -> None:
        with torch.no_grad():
            for parameter in trainer.model.parameters():
                parameter.mul_(1e30)


class MeanLoss(Classification):
    """The likeliest slip: a mean where losses per sample are wanted."""

    def training_step(self, model: nn.Module, batch: Any) -> Step:
        return Step(super().training_step(model, batch).losses.mean())


class ScalarScores(Classification):
    """The same slip in evaluation."""

    def evaluation_step(self, model: nn.Module, batch: Any) -> dict[str, Tensor]:
        return {name: value.mean() for name, value in super().evaluation_step(model, batch).items()}


class Exits(Callback):
    """Calls sys.exit(0), as a library may."""

    def on_epoch_end(self, trainer: Any) -> None:
        raise SystemExit(0)


class Stuck(Callback):
    """Cannot be closed."""

    def close(self) -> None:
        raise OSError("stuck")


class Faulty(Callback):
    """A fault at an update, for as long as the file `flag` is there: what else but Python can go wrong, too.

    Args:
        kind: raise, other, memory, kill, or none.
    """

    def __init__(self, kind: str, flag: str, update: int = 12) -> None:
        self.kind, self.flag, self.update = kind, flag, update

    def on_batch_end(self, trainer: Any, batch: Any) -> None:
        if trainer.progress.update != self.update or not os.path.exists(self.flag):
            return
        if self.kind == "raise":
            raise RuntimeError("the first kind")
        if self.kind == "other":
            raise ValueError("another kind")
        if self.kind == "memory":
            raise torch.OutOfMemoryError("out of memory, it says")
        if self.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)


class Environment(Callback):
    """Writes the GPU and the cores that a job is told to use into its directory."""

    def on_fit_begin(self, trainer: Any) -> None:
        said = f"{os.environ.get('CUDA_VISIBLE_DEVICES')} {os.environ.get('TORCHLITE_CORES')}"
        (trainer.record.directory / "environment.txt").write_text(said)


class Edits(Callback):
    """Appends to a file, as somebody does who edits a yaml while a sweep runs."""

    def __init__(self, file: str, text: str) -> None:
        self.file, self.text = file, text

    def on_fit_begin(self, trainer: Any) -> None:
        with open(self.file, "a", encoding="utf-8") as file:
            file.write(self.text)


class KillsWorker(Callback):
    """The machine takes a loader worker away."""

    def __init__(self, epoch: int, file: str = "killed.txt") -> None:
        self.epoch = epoch
        self.file = file

    def on_batch_end(self, trainer: Any, batch: Any) -> None:
        if trainer.progress.epoch == self.epoch and not os.path.exists(self.file):
            loader = trainer.data.train.samples.workers._kept[0]
            os.kill(loader._iterator._workers[0].pid, signal.SIGKILL)
            open(self.file, "w").close()


class Perfect(nn.Module):
    """Knows the class of an image by its level: 60 times the number of the class."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.levels = nn.Parameter(60 / 255 * torch.arange(float(num_classes)))

    def forward(self, images: Tensor) -> Tensor:
        return -100 * (images.mean((1, 2, 3))[:, None] - self.levels).square()
