"""The loop: read `fit`, then `train_epoch`, then `update`."""

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import nn

from torchlite import checkpoint
from torchlite.errors import UserError
from torchlite.machine import find_device, set_threads
from torchlite.metrics import Averages
from torchlite.update import Updater

log = logging.getLogger("torchlite")


@dataclass
class Progress:
    """Where a run stands. `update` counts applied updates and is the x-axis of everything."""

    epoch: int = 0  # epochs finished
    batch: int = 0  # batches of the unfinished epoch that are done
    update: int = 0  # updates applied
    best: dict[str, float] = field(
        default_factory=dict
    )  # {"update", "epoch", "val/acc1", …} of the best validation so far
    last: dict[str, float] = field(default_factory=dict)  # the same of the latest validation
    recent: list[dict[str, float]] = field(default_factory=list)  # the validations that a smoothed score averages
    stop_reason: str | None = None


@dataclass(kw_only=True)
class Trainer:
    """The loop and its options; each field is a key of `conf/trainer/*.yaml`, which gives units and legal values."""

    max_epochs: int
    device: str = "auto"
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    channels_last: bool = False
    compile: bool = False
    fused_optimizer: bool = True
    deterministic: bool = True
    num_threads: int | Literal["auto"] = "auto"
    micro_batch_size: int | Literal["auto"] | None = None
    clip_grad_norm: float | None = None
    clip_grad_value: float | None = None
    clip_gradients: Callable[..., Any] | None = None
    lr_reference_batch_size: int | None = None
    decay_norm_and_bias: bool = False
    validate_every_epochs: int = 1
    validate_every_updates: int | None = None
    smooth_validations: int = 1
    save_every_epochs: int | None = None
    monitor: str = "val/acc1"
    monitor_mode: Literal["auto", "max", "min"] = "auto"
    log_every_updates: int = 50

    def __post_init__(self) -> None:
        positive = (
            "max_epochs num_threads micro_batch_size clip_grad_norm clip_grad_value lr_reference_batch_size "
            "validate_every_epochs validate_every_updates smooth_validations save_every_epochs log_every_updates"
        )
        for name in positive.split():
            value = getattr(self, name)
            if isinstance(value, int | float) and not value > 0:
                raise UserError(f"trainer.{name}={value}: nothing would be trained or done; give a number above 0.")

    # Before anything is built

    def check_monitor(self, metrics: dict[str, Literal["max", "min"]]) -> None:
        """Raise UserError unless `monitor` is one of the task's scores, `{"acc1": "max", …}`; fix which direction is better."""
        directions = {f"val/{name}": better for name, better in metrics.items()}
        if self.smooth_validations > 1:
            directions |= {f"{name}_smooth": better for name, better in directions.items()}
        if self.monitor not in directions:
            raise UserError(f"trainer.monitor={self.monitor} is not measured; the scores are: {', '.join(directions)}.")
        better = directions[self.monitor]
        self.monitor_direction: Literal["max", "min"] = better if self.monitor_mode == "auto" else self.monitor_mode
        self.monitor_is_odd = self.monitor_direction != better

    def prepare(self) -> dict[str, Any]:
        """Fix what `auto` stands for on this machine, set the number of threads; returns the choices, for the record."""
        if self.monitor_is_odd:
            log.warning(f"trainer.monitor_mode={self.monitor_mode} keeps the worst {self.monitor}")
        self.device_used = find_device(self.device)
        threads = set_threads(self.num_threads)
        return {"device": str(self.device_used), "num_threads": threads, "monitor_mode": self.monitor_direction}

    # The run, from the top

    def fit(
        self, *, model: nn.Module, task: Any, data: Any, optimizer: Any, schedule: Any, hooks: Any, record: Any
    ) -> None:
        """Train until `max_epochs` or a callback's stop; the best weights are then in `model`."""
        self.model, self.task, self.data, self.record = model, task, data, record
        self.optimizer, self.schedule, self.hooks = optimizer, schedule, hooks
        self.progress = Progress()
        self.total_updates = self.max_epochs * len(data.train)
        self.updater = self._updater()
        self.epoch_averages = Averages()
        hooks.call("on_fit_begin", self)
        model.train()
        while self.progress.epoch < self.max_epochs and self.progress.stop_reason is None:
            self.train_epoch()
        if self.progress.stop_reason:
            log.info(f"stopped after epoch {self.progress.epoch}: {self.progress.stop_reason}")
        self.load_best()

    def _updater(self) -> Updater:
        return Updater(
            self.model,
            torch.compile(self.model) if self.compile else self.model,
            self.task,
            self.optimizer,
            self.device_used,
            self.precision,
            self.micro_batch_size,
            self.clip_grad_norm,
            self.clip_grad_value,
            self.clip_gradients,
        )

    def train_epoch(self) -> None:
        """One pass over the training part, validation and checkpoints included."""
        progress = self.progress
        self.hooks.call("on_epoch_begin", self)
        self._start_clock()
        started = time.perf_counter()
        for batch in self.data.train.epoch(progress.epoch, start=progress.batch):
            self.hooks.call("on_batch_begin", self, batch)
            applied = self.updater.apply(batch, progress.update + 1)
            progress.batch += 1
            self._samples += len(batch.ids)
            if not applied:
                continue
            self.lr = self.schedule.lr
            self.schedule.after_update()
            progress.update += 1
            self.hooks.call("on_batch_end", self, batch)
            if progress.update % self.log_every_updates == 0:
                self.log_update()
            if self.validate_every_updates and progress.update % self.validate_every_updates == 0:
                self.write_line(self.validate())
                self._start_clock()
        self._collect()
        progress.epoch, progress.batch = progress.epoch + 1, 0
        self.schedule.after_epoch()
        line = {f"train/{name}": mean for name, mean in self.epoch_averages.means().items()}
        self.epoch_averages.reset()
        if self._validation_is_due():
            line |= self.validate()
        line |= {"lr": self.lr, "seconds/epoch": time.perf_counter() - started}
        self.write_line(line)
        self.hooks.call("on_epoch_end", self)
        self.save_last()
        self._say(line)

    # Validation and the best weights

    def _validation_is_due(self) -> bool:
        last = self.progress.epoch == self.max_epochs or self.progress.stop_reason is not None
        done = self.progress.last.get("update") == self.progress.update
        return (
            self.data.val is not None and not done and (last or self.progress.epoch % self.validate_every_epochs == 0)
        )

    def validate(self) -> dict[str, float]:
        """Score the validation part, tell schedule and callbacks, keep the weights if they are the best so far."""
        progress = self.progress
        self.hooks.call("on_validation_begin", self)
        scores = self.evaluate(self.data.val, "val")
        if self.smooth_validations > 1:
            progress.recent = [*progress.recent, dict(scores)][-self.smooth_validations :]
            scores |= {f"{n}_smooth": sum(r[n] for r in progress.recent) / len(progress.recent) for n in list(scores)}
        value, best = scores[self.monitor], progress.best.get(self.monitor)
        progress.last = {"update": progress.update, "epoch": progress.epoch, **scores}
        sign = 1 if self.monitor_direction == "max" else -1
        if math.isfinite(value) and (best is None or sign * value > sign * best):  # the first of equals stays
            progress.best = dict(progress.last)
            checkpoint.save(self.record.checkpoint("best"), self.weights())
        self.schedule.after_validation(value)
        self.hooks.call("on_validation_end", self, scores)
        return scores

    def evaluate(self, batches: Any, part: str) -> dict[str, float]:
        """Means over every sample of a part: `{"val/loss": …, "val/acc1": …}`."""
        averages = Averages()
        self.model.eval()
        with torch.no_grad(), self.updater.autocast():
            for batch in batches.epoch(0):
                averages.add(self.task.evaluation_step(self.model, batch))
        self.model.train()
        return {f"{part}/{name}": mean for name, mean in averages.means().items()}

    def load_best(self) -> None:
        """Put the best weights into the model; without validation the last are the best."""
        if self.data.val is None or not self.progress.best:
            self.progress.best = {"update": self.progress.update, "epoch": self.progress.epoch}
            checkpoint.save(self.record.checkpoint("best"), self.weights())
            return
        self.model.load_state_dict(checkpoint.load(self.record.checkpoint("best"))["model"])

    # Checkpoints

    def weights(self) -> dict[str, Any]:
        """What a file of weights holds: the weights, when they were scored, and the config they belong to."""
        return {"model": self.model.state_dict(), "scores": self.progress.last, "config": self.record.config_json}

    def state(self) -> dict[str, Any]:
        """All that is needed to go on from here."""
        return self.weights() | {
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "scaler": self.updater.scaler.state_dict(),
            "callbacks": self.hooks.state_dict(),
            "progress": vars(self.progress),
        }

    def save_last(self) -> None:
        checkpoint.save(self.record.checkpoint("last"), self.state())
        if self.save_every_epochs and self.progress.epoch % self.save_every_epochs == 0:
            checkpoint.save(self.record.checkpoint(f"epoch-{self.progress.epoch:04d}"), self.state())

    def stop(self, reason: str) -> None:
        """Ask the loop to end after this epoch."""
        self.progress.stop_reason = reason

    # Numbers for people

    def _start_clock(self) -> None:
        self._clock, self._samples = time.perf_counter(), 0

    def log_update(self) -> None:
        """One line about the updates since the last line."""
        self.updater.look()
        line = {f"update/{name}": mean for name, mean in self.updater.averages.means().items()}
        line |= {"lr": self.lr, "grad_norm": self.updater.grad_norm.item()}
        line["images_per_second"] = self._samples / (time.perf_counter() - self._clock)
        self._collect()
        self.write_line(line)
        self._start_clock()

    def _collect(self) -> None:
        """Move the sums since the last line into the epoch's."""
        self.updater.look()
        self.epoch_averages.merge(self.updater.averages)
        self.updater.averages.reset()

    def write_line(self, values: dict[str, float]) -> None:
        line = {"update": self.progress.update, "epoch": self.progress.epoch, **values}
        self.record.log(line)
        self.hooks.call("on_log", self, line)

    def _say(self, line: dict[str, float]) -> None:
        shown = {k: v for k, v in line.items() if k not in ("lr", "seconds/epoch")}
        numbers = "  ".join(f"{name} {value:.4f}" for name, value in shown.items())
        epoch = f"epoch {self.progress.epoch:>{len(str(self.max_epochs))}}/{self.max_epochs}"
        log.info(f"{epoch}  {numbers}  lr {line['lr']:.2e}  {line['seconds/epoch']:.1f} s")
