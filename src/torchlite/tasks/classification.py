"""Single-label classification: cross-entropy with label smoothing and class weights, top-k accuracy."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchlite.errors import UserError
from torchlite.metrics import deferred, lasting, topk_correct
from torchlite.tasks.step import Step


class Classification:
    """Cross-entropy over logits [B, num_classes].

    To train differently, subclass it and replace `training_step`; the loop stays as it is.

    Args:
        num_classes: C, the width of the model's output.
        label_smoothing: 0 <= s < 1; the share of the target spread evenly over all classes (Szegedy et al. 2016).
        class_weights: one positive factor per class for its samples' losses, or None for 1 each.
        topk: the k of each reported top-k accuracy; those above C are left out.
    """

    def __init__(
        self,
        num_classes: int,
        label_smoothing: float = 0.0,
        class_weights: Sequence[float] | None = None,
        topk: Sequence[int] = (1, 5),
    ) -> None:
        if not 0.0 <= label_smoothing < 1.0:
            raise UserError(f"task.label_smoothing={label_smoothing}: give a number from 0 up to, not including, 1.")
        if class_weights is not None and len(class_weights) != num_classes:
            raise UserError(f"task.class_weights has {len(class_weights)} numbers; the data has {num_classes} classes.")
        if class_weights is not None and min(class_weights) <= 0:
            raise UserError(f"task.class_weights={list(class_weights)}: each has to be above 0.")
        if not topk or min(topk) < 1:
            raise UserError(f"task.topk={list(topk)}: give one or more whole numbers from 1 upwards.")
        self.num_classes = num_classes
        self.label_smoothing = label_smoothing
        self.class_weights = None if class_weights is None else torch.tensor(class_weights, dtype=torch.float32)
        self.topk = [k for k in topk if k <= num_classes]

    @property
    def metrics(self) -> dict[str, Literal["max", "min"]]:
        """The names that `evaluation_step` reports, each with the direction that is better: "min" or "max"."""
        return {"loss": "min", **{f"acc{k}": "max" for k in self.topk}}

    def training_step(self, model: nn.Module, batch: Any) -> Step:
        """Losses, with gradient, and accuracy of one batch in training mode."""
        logits = model(batch.images)
        self._check(logits, batch.targets)
        correct = deferred(topk_correct, lasting(logits), batch.targets)
        return Step(self.losses(logits, batch.targets), {"acc1": correct})

    def evaluation_step(self, model: nn.Module, batch: Any) -> dict[str, Tensor]:
        """Each name of `metrics` with one number per sample, [B]; called in evaluation mode, without gradient."""
        logits = model(batch.images)
        self._check(logits, batch.targets)
        losses = self.losses(logits, batch.targets)
        finite = losses.isfinite().float()  # the largest of not-a-numbers is no prediction
        scores = {f"acc{k}": topk_correct(logits, batch.targets, k) * finite for k in self.topk}
        return {"loss": losses, **scores}

    def predict(self, model: nn.Module, images: Tensor) -> Tensor:
        """Class probabilities [B, C] of preprocessed images [B, channels, H, W]."""
        return model(images).float().softmax(dim=1)

    def losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Cross-entropy per sample, [B], in float32; targets int64 [B] or class probabilities [B, C]."""
        if self.class_weights is not None and self.class_weights.device != logits.device:
            self.class_weights = self.class_weights.to(logits.device)
        return F.cross_entropy(
            logits.float(), targets, self.class_weights, reduction="none", label_smoothing=self.label_smoothing
        )

    def _check(self, logits: Any, targets: Tensor) -> None:
        if not isinstance(logits, Tensor):
            raise UserError(
                f"The model gives a {type(logits).__name__}; the task needs logits, a tensor [batch, classes]."
            )
        if logits.ndim != 2 or logits.shape[1] != self.num_classes:
            raise UserError(
                f"The model's output has shape {list(logits.shape)}; the task needs [batch, {self.num_classes}]. "
                "Give the model num_classes: ${data.num_classes}."
            )
        if targets.dtype != torch.int64 and targets.ndim == 1:
            kind = str(targets.dtype).removeprefix("torch.")
            raise UserError(
                f"The targets are {kind} [B]; the task needs class numbers, int64 [B], or probabilities [B, C]."
            )
