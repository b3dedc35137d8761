"""One optimizer update: micro-batches, scaling, the guard against numbers that are not finite, clipping, the step."""

import contextlib
import functools
import itertools
import logging
import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from torchlite.errors import UserError
from torchlite.metrics import Averages, Deferred, deferred, in_full, lasting
from torchlite.tasks.step import Step

log = logging.getLogger("torchlite")
ADVICE = "Try a lower optimizer.lr or trainer.clip_grad_norm=1."
BATCH_STATISTICS = nn.modules.batchnorm._BatchNorm  # the class above all batch norms; sees more of a window uncut
TOO_FEW_VALUES = "more than 1 value per channel"  # what torch's batch norms want
NO_STATISTICS = (
    "a batch of one sample has no batch statistics: set data.drop_last=true, another data.batch_size or "
    "trainer.micro_batch_size, or model.norm=group."
)
LESS_MEMORY = (
    "trainer.micro_batch_size=auto cuts a batch until it fits, and the update stays the same",
    "trainer.activation_checkpointing=true computes twice what it would keep",
    "trainer.precision=bf16 halves it",
)
PRECISIONS = {"bf16": torch.bfloat16, "fp16": torch.float16}


class NotFiniteError(FloatingPointError):
    """A loss or gradient that is infinite or no number; the update was not applied."""


class Updater:
    """Applies updates, each with the mean gradient over the samples of one batch, however that is cut.

    Args:
        model: holds the parameters.
        forward: what is called in its place, the compiled model for one.
        task: its `training_step(forward, batch)` gives losses per sample.
        precision: fp32, or autocast to bf16 or fp16, the latter with a gradient scaler.
        micro_batch_size: samples at once; None for the whole batch; "auto" halves it whenever memory runs out.
        clip_grad_norm, clip_grad_value: largest norm of the whole gradient, largest entry; on unscaled gradients.
        clip_gradients: a function of yours, called with (parameters, norm) instead.
    """

    def __init__(
        self,
        model: nn.Module,
        forward: Callable[..., Any],
        task: Any,
        optimizer: torch.optim.Optimizer,
        device: torch.device,
        precision: str = "fp32",
        micro_batch_size: int | str | None = None,
        clip_grad_norm: float | None = None,
        clip_grad_value: float | None = None,
        clip_gradients: Callable[[list[nn.Parameter], Tensor], Any] | None = None,
    ) -> None:
        self.model, self.forward, self.task, self.optimizer, self.device = model, forward, task, optimizer, device
        self.precision = precision
        self.scaler = torch.amp.GradScaler(device.type, enabled=precision == "fp16")
        self.halving = micro_batch_size == "auto"
        self.micro_batch_size = micro_batch_size if isinstance(micro_batch_size, int) else None
        self.takes_batch_statistics = any(isinstance(module, BATCH_STATISTICS) for module in model.modules())
        if self.micro_batch_size is not None and self.takes_batch_statistics:
            log.info(
                "trainer.micro_batch_size: batch norm takes its statistics of each part; model.norm=group takes none"
            )
        self.clip_grad_norm, self.clip_grad_value, self.clip_gradients = clip_grad_norm, clip_grad_value, clip_gradients
        self._clips = any(rule is not None for rule in (clip_grad_norm, clip_grad_value, clip_gradients))
        self.averages = Averages()  # of the samples since somebody reset them
        self.parameters = list(model.parameters())
        self._real = not any(parameter.is_complex() for parameter in self.parameters)
        self._losses: list[Tensor] = []  # of the latest update, [B] of each of its parts
        self._on_cpu = device.type == "cpu"
        self.grad_square: Tensor | float = 0.0  # the squared norm of its whole gradient, unscaled, before clipping
        self.skipped = 0  # updates that fp16's scaler did not apply
        # A fused optimizer leaves out a bad update by itself, so a GPU need not be waited for to know
        self._found_inf = device.type == "cuda" and getattr(optimizer, "_step_supports_amp_scaling", False)
        # There: flags, names, ids and number of the updates since the last look
        self._pending: list[tuple[Tensor, list[str], Tensor, int]] = []

    def apply(self, batch: Any, update: int) -> bool:
        """Do update number `update` (from 1). False when fp16's scaler found an overflow and left it out.

        Raises:
            NotFiniteError: the gradient is not finite; the weights are as before. On CUDA `look` raises it, later.
        """
        self._backward(batch)
        if self.precision == "fp16":
            return self._step_scaled(batch, update)
        squares = self._measure()
        if self._found_inf or not math.isfinite(self.grad_square):
            self._guard(squares, batch, update)
        if self._clips:
            self._clip()
        self.optimizer.step()
        return True

    def _step_scaled(self, batch: Any, update: int) -> bool:
        """The same with fp16's scaler, which is the guard then: it leaves out an update that is not finite."""
        self.scaler.unscale_(self.optimizer)
        self._measure()
        if self._clips:
            self._clip()
        scale = self.scaler.get_scale()
        new = [p for p in self.parameters if p.grad is not None and p not in self.optimizer.state]
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.scaler.get_scale() >= scale:
            return True
        for parameter in new:  # fused SGD has given it a momentum that nothing was written to
            self.optimizer.state.pop(parameter, None)
        self.skipped += 1
        log.info(
            f"fp16 overflow: update {update} is tried again with the next batch, at scale {self.scaler.get_scale():g}"
        )
        if self.scaler.get_scale() < 1e-3:
            raise NotFiniteError(f"update {update}: the gradient is not finite at any scale. {_advice(batch.ids)}")
        return False

    # Forward and backward

    def _backward(self, batch: Any) -> None:
        window = batch.ids.numel()
        while True:
            self._clear_gradients()
            parts = []
            try:
                for part in (batch,) if self.micro_batch_size is None else batch.split(self.micro_batch_size):
                    parts.append(self._backward_part(part, window))
            except torch.OutOfMemoryError as error:
                if not self.halving or (self.micro_batch_size or window) == 1:
                    known = (self.halving, False, self.precision != "fp32")
                    error.add_note(
                        "Less memory: " + "; ".join(itertools.compress(LESS_MEMORY, map(operator.not_, known)))
                    )
                    raise
                self._halve(window)
                continue
            self._losses.clear()
            for losses, metrics in parts:
                self._losses.append(losses)
                self.averages.add({"loss": deferred(_as_they_are, losses), **metrics})
            return

    def _backward_part(self, part: Any, window: int) -> tuple[Tensor, dict[str, Any]]:
        """The losses, [B], without gradient, and the task's metrics."""
        try:
            if self.precision == "fp32":  # no context: to enter one that does nothing takes time too
                step = self.task.training_step(self.forward, part)
            else:
                with self.autocast():
                    step = self.task.training_step(self.forward, part)
        except ValueError as error:
            if TOO_FEW_VALUES in str(error):
                raise UserError(NO_STATISTICS) from error
            raise
        if not isinstance(step, Step) or step.losses.shape != part.ids.shape:
            raise UserError(
                f"{type(self.task).__name__}.training_step has to return a Step with one loss a sample, [B]."
            )
        if "loss" in step.metrics:
            raise UserError(
                f"{type(self.task).__name__}.training_step: 'loss' is the loss; name that metric otherwise."
            )
        for name, value in step.metrics.items():
            if not isinstance(value, Deferred) and getattr(value, "shape", None) != step.losses.shape:
                raise UserError(
                    f"{type(self.task).__name__}.training_step: the metric {name} has to be [B], one a sample."
                )
        if not step.losses.requires_grad:
            raise UserError(
                f"{type(self.task).__name__}.training_step: the losses have no gradient: are they detached, or is every "
                "parameter frozen?"
            )
        losses = in_full(step.losses)
        scaled = self.scaler.scale(losses) if self.precision == "fp16" else losses
        scaled.backward(_share(losses.numel(), window, losses.dtype, self.device))
        return lasting(losses), step.metrics

    def _halve(self, window: int) -> None:
        self.micro_batch_size = (min(self.micro_batch_size or window, window) + 1) // 2
        self._clear_gradients()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        same = "batch statistics are of these parts now" if self.takes_batch_statistics else "updates stay the same"
        log.warning(f"out of memory: going on with trainer.micro_batch_size={self.micro_batch_size}; {same}")

    def _clear_gradients(self) -> None:
        for parameter in self.parameters:  # what the optimizer's zero_grad does at twenty times the cost
            parameter.grad = None

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """A new context each time, as one may be entered within another."""
        if self.precision == "fp32":
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, PRECISIONS[self.precision])

    @property
    def loss_sum(self) -> Tensor:
        """The losses of the latest update added up, 0 before the first; a scalar on the device."""
        sums = [losses.sum() for losses in self._losses] or [torch.zeros((), device=self.device)]
        return torch.stack(sums).sum()

    # Gradients

    @property
    def grad_norm(self) -> Tensor:
        """The norm of the latest update's whole gradient, unscaled, before clipping; a scalar on the device."""
        return torch.as_tensor(self.grad_square, dtype=torch.float32, device=self.device).sqrt()

    def _measure(self) -> list[float] | Tensor:
        """The squared norm of each gradient, whose sum is `grad_square`; on CPU by dot products, a third as dear as norms."""
        if self._on_cpu:
            squares = []
            for parameter in self.parameters:
                if (gradient := parameter.grad) is not None:
                    flat = gradient.view(-1) if self._real and gradient.is_contiguous() else _flat(gradient)
                    squares.append(flat.dot(flat).item())
            self.grad_square = sum(squares)
            return squares
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        on_device = torch.stack(torch._foreach_norm(gradients)).square()
        self.grad_square = on_device.sum()
        return on_device

    def _guard(self, squares: list[float] | Tensor, batch: Any, update: int) -> None:
        """Keep a gradient that is not finite from the weights: on CUDA the optimizer is told, and looks itself."""
        bad = ~torch.as_tensor(squares).isfinite()
        if not self._found_inf:
            raise NotFiniteError(_story(bad, self._names(), batch.ids, update))
        self.optimizer.found_inf = bad.any().float()  # type: ignore[attr-defined]
        self._pending.append((bad, self._names(), batch.ids, update))

    def look(self) -> None:
        """Raise NotFiniteError for the first bad update since the last look. Waits for the device; a no-op on CPU."""
        pending, self._pending = self._pending, []
        for flags, names, ids, update in pending:
            if flags.any().item():
                raise NotFiniteError(_story(flags, names, ids, update))

    def _names(self) -> list[str]:
        return [name for name, p in self.model.named_parameters() if p.grad is not None]

    def _clip(self) -> None:
        parameters = [p for p in self.parameters if p.grad is not None]
        if self.clip_gradients is not None:
            self.clip_gradients(parameters, self.grad_norm)
            return
        largest, square = self.clip_grad_norm, self.grad_square
        # Known to be within: torch would multiply everything by one
        within = largest is not None and isinstance(square, float) and math.sqrt(square) + 1e-6 <= largest
        if largest is not None and not within:
            nn.utils.clip_grads_with_norm_(parameters, largest, self.grad_norm)
        if self.clip_grad_value is not None:
            nn.utils.clip_grad_value_(parameters, self.clip_grad_value)


@functools.lru_cache(maxsize=8)
def _share(count: int, window: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """What each of `count` losses weighs in the mean of a window, [count]."""
    return torch.full((count,), 1 / window, dtype=dtype, device=device)


def _as_they_are(losses: Tensor) -> Tensor:
    return losses


def _flat(gradient: Tensor) -> Tensor:
    """All its numbers in a row, [N], in the order they lie in memory, such as channels-last, so that none is copied."""
    if gradient.is_sparse:
        return gradient.coalesce().values().reshape(-1)
    if gradient.is_complex():
        gradient = torch.view_as_real(gradient)
    return gradient.permute(sorted(range(gradient.ndim), key=gradient.stride, reverse=True)).reshape(-1)


def _story(bad: Tensor, names: list[str], ids: Tensor, update: int) -> str:
    where = next((name for name, is_bad in zip(names, bad.tolist(), strict=True) if is_bad), "the whole")
    return f"update {update}: the gradient of {where} is not finite; it was not applied. {_advice(ids)}"


def _advice(ids: Tensor) -> str:
    shown = ", ".join(map(str, ids[:8].tolist())) + (", …" if len(ids) > 8 else "")
    return f"Samples: {shown}. {ADVICE}"
