"""The loop: read `fit`, then `train_epoch`; one update is in update.py."""

import itertools
import logging
import math
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from torchlite import progress as progress_state
from torchlite.checkpoint import Writer
from torchlite.evaluation import evaluate
from torchlite.metrics import Averages
from torchlite.optim import WeightAverage
from torchlite.options import TrainerOptions
from torchlite.progress import Progress
from torchlite.randomness import restore_generators
from torchlite.stopping import StopRequest
from torchlite.update import Updater

log = logging.getLogger("torchlite")
LONG = 10.0  # seconds that a stop waits for a validation


class Trainer(TrainerOptions):
    """The loop; what can be set of it is in options.py."""

    def updates_per_epoch(self, data: Any) -> int:
        return min(len(data.train), self.limit_train_batches or len(data.train))

    # The run, from the top

    def fit(
        self, *, model: nn.Module, task: Any, data: Any, optimizer: Any, schedule: Any, hooks: Any, record: Any,
        device: torch.device, precision: str = "fp32", compile: bool = False, saved: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        """Train until `max_epochs` or a callback's stop; the best weights are then in `model`.

        Args:
            precision, compile: what `auto` became.
            saved: the state to go on from, of `progress.state`.

        Raises:
            Stopped: a signal came or `max_minutes` are over; a checkpoint is written.
            NotFiniteError: see `Updater.apply`; the last checkpoint stays.
        """
        self.model, self.task, self.data, self.record = model, task, data, record
        self.optimizer, self.schedule, self.hooks, self.device_used = optimizer, schedule, hooks, device
        self.total_updates = self.max_epochs * self.updates_per_epoch(data)
        averaging = self.ema_decay is not None or self.swa_start_epoch is not None
        self.average = WeightAverage(model, self.ema_decay, self.swa_start_epoch) if averaging else None
        self.updater = Updater(
            model, torch.compile(model) if compile else model, task, optimizer, device, precision,
            self.micro_batch_size, self.clip_grad_norm, self.clip_grad_value, self.clip_gradients,
        )  # fmt: skip
        self.progress, self.epoch_averages, self.lr = Progress(), Averages(), schedule.lr
        self.writer = Writer(self.keep_epochs, self.save_pause_seconds)
        self._best_is_new, self._saved_at = False, time.monotonic()
        self._may_leave = False  # a validation, in the midst of it
        if saved is not None:
            progress_state.restore(self, saved)
        self._began_at = self.progress.update
        hooks.call("on_fit_begin", self)
        if saved is not None:  # whatever a callback has drawn
            restore_generators(saved["generators"])
        model.train()
        with self.writer.flushed(), StopRequest(self.max_minutes).listening() as self.stop_request:
            # A callback's stop waits for the epoch's end, also when the run was cut in between
            while self.progress.epoch < self.max_epochs and (not self.progress.stop_reason or self.progress.batch):
                self.train_epoch()
        if self.progress.stop_reason:
            log.info(f"stopped after epoch {self.progress.epoch}: {self.progress.stop_reason}")
        self.weights_are = progress_state.load_best(self)

    def train_epoch(self) -> None:
        """One pass over the training part, or the rest of one, with its validations and checkpoints."""
        progress = self.progress
        if progress.batch == 0:
            self.hooks.call("on_epoch_begin", self)
        self._epoch_started = time.perf_counter() - progress.epoch_seconds
        self._start_clock()
        if progress.batch and self._validate_within_epoch():  # it was stopped in the midst of that
            self.save()
        batches = self.data.train.epoch(progress.epoch, start=progress.batch)
        for batch in itertools.islice(batches, self.updates_per_epoch(self.data) - progress.batch):
            self.hooks.call("on_batch_begin", self, batch)
            applied = self.updater.apply(batch, progress.update + 1)
            progress.batch += 1
            self._samples += batch.ids.numel()
            if applied:
                self._after_update(batch)
        if self._validation_is_due(progress.epoch + 1):
            self._save_before_validation()
        self._collect()
        progress.epoch, progress.batch = progress.epoch + 1, 0
        self.schedule.after_epoch()
        if self.average is not None:
            self.average.after_epoch(progress.epoch - 1)
        line = {f"train/{name}": mean for name, mean in self.epoch_averages.means().items()}
        self.epoch_averages.reset()
        if self._validation_is_due(progress.epoch):
            line |= self.validate()
        line["seconds/epoch"] = time.perf_counter() - self._epoch_started
        if progress.update % self.log_every_updates:  # else the update's own line has it
            line["lr"] = self.lr
        self.write_line(line)
        self.hooks.call("on_epoch_end", self)
        if self._validation_is_due(progress.epoch):  # a callback has just made it the last
            self.write_line(self.validate())
        progress.seconds, progress.epoch_seconds = progress.seconds + line["seconds/epoch"], 0.0
        self.save(may_wait=True)
        log.info(progress_state.sentence(self, line))
        self._stop_if_asked(saved=True)

    def _after_update(self, batch: Any) -> None:
        """What an applied update brings with it: schedule, averages, log, validation, checkpoint, a stop if one was asked."""
        progress = self.progress
        self.lr = self.schedule.lr
        self.schedule.after_update()
        progress.update += 1
        if self.average is not None:
            self.average.after_update()
        self.hooks.call("on_batch_end", self, batch)
        if progress.update % self.log_every_updates == 0:
            self.log_update()
        if self._is_due_by_updates():
            self._validate_within_epoch()
        due = self._save_is_due()
        saved = due or self._best_is_new
        if saved:
            self.save(may_wait=not due)
        self._stop_if_asked(saved)

    # Validation

    def _validate_within_epoch(self) -> bool:
        """Validate if it is due after so many updates; an epoch's last is validated at its end, when SWA has averaged."""
        progress = self.progress
        within = progress.batch < self.updates_per_epoch(self.data)
        is_due = self._is_due_by_updates() and within and progress.last.get("update") != progress.update
        if is_due:
            self._save_before_validation()
            self.write_line(self.validate())
            self._start_clock()
        return is_due

    @property
    def scored_model(self) -> nn.Module:
        """The network that is scored and kept as best: the averaged weights when there are any, else the model."""
        return self.model if self.average is None else self.average.module

    def _validation_is_due(self, epochs: int) -> bool:
        """At the end of an epoch, by which so many are over."""
        progress = self.progress
        last = epochs == self.max_epochs or progress.stop_reason is not None
        due = last or epochs % self.validate_every_epochs == 0 or self._is_due_by_updates()
        scored = progress.last.get("update") == progress.update and progress.last.get("epoch") == epochs
        return self.data.val is not None and due and not scored

    def _is_due_by_updates(self) -> bool:
        every = self.validate_every_updates
        return every is not None and self.progress.update % every == 0 and self.data.val is not None

    def _save_before_validation(self) -> None:
        """Save, where a validation may take long: a stop need not wait for it then, and a resumed run begins with it."""
        train, val, seconds = self.data.train, self.data.val, time.perf_counter() - self._epoch_started
        per_sample = seconds / self.progress.batch * len(train) / train.num_samples  # of training, which takes longer
        self._may_leave = per_sample * val.num_samples > LONG
        if self._may_leave:
            self.save()
            self._leave_if_asked()

    def validate(self) -> dict[str, float]:
        """Score the validation part, tell schedule and callbacks, note whether the weights are the best so far."""
        progress = self.progress
        self.updater.look()
        self.hooks.call("on_validation_begin", self)
        scores = self.evaluate(self.data.val, "val")
        self._may_leave = False
        if self.smooth_validations > 1:
            progress.recent = [*progress.recent, dict(scores)][-self.smooth_validations :]
            scores |= {f"{n}_smooth": sum(r[n] for r in progress.recent) / len(progress.recent) for n in list(scores)}
        value, best = scores[self.monitor], progress.best.get(self.monitor)
        progress.last = {"update": progress.update, "epoch": progress.epoch, **scores}
        sign = 1 if self.monitor_direction == "max" else -1
        if not math.isfinite(value):
            log.warning(f"{self.monitor} is not finite at update {progress.update}, so it cannot be the best")
        elif best is None or sign * value > sign * best:  # the first of equals stays
            progress.best, self._best_is_new = dict(progress.last), True
        self.schedule.after_validation(value)
        self.hooks.call("on_validation_end", self, scores)
        return scores

    def evaluate(self, batches: Any, part: str, model: nn.Module | None = None) -> dict[str, float]:
        """Means over every sample of a part, of the scored model or another: `{"val/loss": …, "val/acc1": …}`."""
        scored, autocast = model or self.scored_model, self.updater.autocast()
        means = evaluate(scored, self.task, batches, autocast, self.limit_eval_batches, self._leave_if_asked)
        return {f"{part}/{name}": mean for name, mean in means.items()}

    def _leave_if_asked(self) -> None:
        """Stop within a validation that was saved before, if that is asked."""
        # One that takes longer than max_minutes would begin anew for ever, were it left before any update
        if self._may_leave and (self.progress.update > self._began_at or self.stop_request.is_signalled):
            self._stop_if_asked(saved=True)

    # Checkpoints and stops

    def _save_is_due(self) -> bool:
        late = self.save_every_minutes and time.monotonic() - self._saved_at > 60 * self.save_every_minutes
        return bool(late or (self.save_every_updates and self.progress.update % self.save_every_updates == 0))

    def save(self, may_wait: bool = False) -> None:
        """Write, in this order: at the end of some epochs a numbered copy, last.pt, and best.pt when there is a new best.

        What may wait is kept in memory for `save_pause_seconds` after the last write, and written when the run ends.
        """
        self.updater.look()
        if self.progress.batch:
            self.progress.epoch_seconds = time.perf_counter() - self._epoch_started
        state = progress_state.state(self)
        jobs: dict[Path, dict[str, Any]] = {}
        if self.save_every_epochs and self.progress.batch == 0 and self.progress.epoch % self.save_every_epochs == 0:
            # Before last.pt, which a killed run goes on from: it comes to this one again, or has it
            jobs[self.record.checkpoint(f"epoch-{self.progress.epoch:04d}")] = state
            may_wait = False
        jobs[self.record.checkpoint("last")] = state
        if self._best_is_new:
            jobs[self.record.checkpoint("best")] = progress_state.weights(self)
        if self.writer.save(jobs, sync=self.record.sync, may_wait=may_wait):
            self._saved_at = time.monotonic()
        self._best_is_new = False

    def stop(self, reason: str) -> None:
        """Ask the loop to end after this epoch."""
        self.progress.stop_reason = reason

    def _stop_if_asked(self, saved: bool) -> None:
        stopped = self.stop_request.check()
        if stopped is not None:
            if not saved:
                self.save()
            self.writer.wait()
            raise stopped

    # Numbers for people

    def _start_clock(self) -> None:
        self._clock, self._samples = time.perf_counter(), 0

    def log_update(self) -> None:
        """One line about the updates since the last line."""
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
        self.progress.lines += 1
        self.hooks.call("on_log", self, line)
