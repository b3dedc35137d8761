"""The loop: read `fit`, then `train_epoch`, then `update`."""

import contextlib
import logging
import math
import time
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from torchlite import checkpoint
from torchlite.errors import UserError
from torchlite.metrics import Averages

log = logging.getLogger("torchlite")
DEFAULT_THREADS = torch.get_num_threads()  # read once: a job that sets its own number must not change the next job's


class NotFiniteError(FloatingPointError):
    """A loss or gradient that is infinite or no number; the update was not applied."""


@dataclass
class Progress:
    """Where a run stands. `update` counts applied updates and is the x-axis of everything."""

    epoch: int = 0  # epochs finished
    batch: int = 0  # batches of the unfinished epoch that are done
    update: int = 0  # updates applied
    best: dict[str, float] = field(default_factory=dict)  # {"update", "epoch", "val/acc1", …} of the best validation so far
    last: dict[str, float] = field(default_factory=dict)  # the same of the latest validation
    recent: list[dict[str, float]] = field(default_factory=list)  # the validations that a smoothed score averages
    skipped: int = 0  # updates not applied because fp16 overflowed
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
    micro_batch_size: int | None = None
    clip_grad_norm: float | None = None
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
            "max_epochs num_threads micro_batch_size clip_grad_norm lr_reference_batch_size validate_every_epochs "
            "validate_every_updates smooth_validations save_every_epochs log_every_updates"
        )
        for name in positive.split():
            value = getattr(self, name)
            if isinstance(value, int | float) and not value > 0:
                raise UserError(f"trainer.{name}={value}: nothing would be trained or done; give a number above 0.")

    # Before anything is built

    def check_monitor(self, metrics: dict[str, str]) -> None:
        """Raise UserError unless `monitor` is one of the task's scores, `{"acc1": "max", …}`; fix which direction is better."""
        directions = {f"val/{name}": better for name, better in metrics.items()}
        if self.smooth_validations > 1:
            directions |= {f"{name}_smooth": better for name, better in directions.items()}
        if self.monitor not in directions:
            raise UserError(f"trainer.monitor={self.monitor} is not measured; the scores are: {', '.join(directions)}.")
        better = directions[self.monitor]
        self.monitor_direction = better if self.monitor_mode == "auto" else self.monitor_mode
        if self.monitor_direction != better:
            log.warning(f"trainer.monitor_mode={self.monitor_mode} keeps the worst {self.monitor}; usual is {better}")

    def prepare(self) -> dict[str, Any]:
        """Fix what `auto` stands for on this machine, set the number of threads; returns the choices, for the record."""
        self.device_used = self._find_device()
        threads = DEFAULT_THREADS if self.num_threads == "auto" else self.num_threads
        torch.set_num_threads(threads)
        return {"device": str(self.device_used), "num_threads": threads, "monitor_mode": self.monitor_direction}

    def _find_device(self) -> torch.device:
        if self.device == "auto":
            accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
            return accelerator or torch.device("cpu")
        try:
            return torch.empty(0, device=self.device).device
        except (RuntimeError, AssertionError) as error:
            first_line = str(error).splitlines()[0]
            raise UserError(f"trainer.device={self.device} cannot be used here: {first_line} (auto finds one)") from error

    # The run, from the top

    def fit(self, *, model: nn.Module, task: Any, data: Any, optimizer: Any, schedule: Any, hooks: Any, record: Any) -> None:
        """Train until `max_epochs` or a callback's stop; the best weights are then in `model`."""
        self.model, self.task, self.data, self.record = model, task, data, record
        self.optimizer, self.schedule, self.hooks = optimizer, schedule, hooks
        self.progress = Progress()
        self.total_updates = self.max_epochs * len(data.train)
        self.scaler = torch.amp.GradScaler(self.device_used.type, enabled=self.precision == "fp16")  # type: ignore[attr-defined]
        self.forward = torch.compile(model) if self.compile else model
        self.epoch_averages, self.averages = Averages(), Averages()
        hooks.call("on_fit_begin", self)
        model.train()
        while self.progress.epoch < self.max_epochs and self.progress.stop_reason is None:
            self.train_epoch()
        if self.progress.stop_reason:
            log.info(f"stopped after epoch {self.progress.epoch}: {self.progress.stop_reason}")
        self.load_best()

    def train_epoch(self) -> None:
        """One pass over the training part, validation and checkpoints included."""
        progress = self.progress
        self.hooks.call("on_epoch_begin", self)
        self._start_clock()
        started = time.perf_counter()
        for batch in self.data.train.epoch(progress.epoch, start=progress.batch):
            self.hooks.call("on_batch_begin", self, batch)
            applied = self.update(batch)
            progress.batch += 1
            self.hooks.call("on_batch_end", self, batch)
            if not applied:
                continue
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

    def update(self, batch: Any) -> bool:
        """One optimizer update with the mean gradient over the batch, however it is cut into micro-batches.

        False when fp16's scaler found an overflow and skipped it: then no schedule moves and nothing counts it as applied.
        """
        self.optimizer.zero_grad(set_to_none=True)
        for part in batch.split(self.micro_batch_size) if self.micro_batch_size else (batch,):
            with self.autocast():
                step = self.task.training_step(self.forward, part)
            loss_sum = step.losses.sum()
            self.scaler.scale(loss_sum / len(batch.ids)).backward()
            self.averages.add_sum("loss", loss_sum.detach(), len(part.ids))
            self.averages.add(step.metrics)
        self.scaler.unscale_(self.optimizer)
        self.grad_norm = self._gradient_norm()
        self.guard(loss_sum, batch)
        if self.clip_grad_norm is not None:
            nn.utils.clip_grads_with_norm_(self.model.parameters(), self.clip_grad_norm, self.grad_norm)
        scale = self.scaler.get_scale()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self._samples += len(batch.ids)
        if self.scaler.get_scale() < scale:
            self.progress.skipped += 1
            return False
        self.lr = self.schedule.lr
        self.schedule.after_update()
        self.progress.update += 1
        return True

    def _gradient_norm(self) -> Tensor:
        """The norm of the whole gradient; on CPU one dot product a tensor, which costs a third of get_total_norm."""
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        if self.device_used.type != "cpu":
            return torch.nn.utils.get_total_norm(gradients)
        return torch.stack([torch.dot(g.flatten(), g.flatten()) for g in gradients]).sum().sqrt()

    def guard(self, loss_sum: Tensor, batch: Any) -> None:
        """Raise before a gradient that is not finite reaches the weights (fp16's scaler skips those by itself)."""
        if self.scaler.is_enabled() or math.isfinite(self.grad_norm.item()):
            return
        names = [n for n, p in self.model.named_parameters() if p.grad is not None and not p.grad.isfinite().all()]
        where = f"the gradient of {names[0]}" if names else "the norm of the gradient"
        raise NotFiniteError(
            f"update {self.progress.update + 1}: {where} is not finite (loss {loss_sum.item() / len(batch.ids):g}); it was not "
            f"applied. Samples: {batch.ids[:8].tolist()}. Try a lower optimizer.lr or trainer.clip_grad_norm=1."
        )

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        if self.precision == "fp32":
            return contextlib.nullcontext()
        kind = torch.bfloat16 if self.precision == "bf16" else torch.float16
        return torch.autocast(self.device_used.type, kind)

    # Validation and the best weights

    def _validation_is_due(self) -> bool:
        last = self.progress.epoch == self.max_epochs or self.progress.stop_reason is not None
        done = self.progress.last.get("update") == self.progress.update
        return self.data.val is not None and not done and (last or self.progress.epoch % self.validate_every_epochs == 0)

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
        with torch.no_grad(), self.autocast():
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
            "scaler": self.scaler.state_dict(),
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
        line = {f"update/{name}": mean for name, mean in self.averages.means().items()}
        line |= {"lr": self.lr, "grad_norm": self.grad_norm.item()}
        line["images_per_second"] = self._samples / (time.perf_counter() - self._clock)
        self._collect()
        self.write_line(line)
        self._start_clock()

    def _collect(self) -> None:
        """Move the sums since the last line into the epoch's."""
        self.epoch_averages.merge(self.averages)
        self.averages.reset()

    def write_line(self, values: dict[str, float]) -> None:
        line = {"update": self.progress.update, "epoch": self.progress.epoch, **values}
        self.record.log(line)
        self.hooks.call("on_log", self, line)

    def _say(self, line: dict[str, float]) -> None:
        shown = {k: v for k, v in line.items() if k not in ("lr", "seconds/epoch")}
        numbers = "  ".join(f"{name} {value:.4f}" for name, value in shown.items())
        epoch = f"epoch {self.progress.epoch:>{len(str(self.max_epochs))}}/{self.max_epochs}"
        log.info(f"{epoch}  {numbers}  lr {line['lr']:.2e}  {line['seconds/epoch']:.1f} s")


