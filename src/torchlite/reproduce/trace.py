"""What every module computes in the first updates, as checksums: by them two runs are told apart to the module."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from torchlite.callbacks import Callback
from torchlite.digests import checksum
from torchlite.errors import DONE
from torchlite.stopping import Stopped

KINDS = (  # of operation, by the beginning of a class's name
    ("Conv", "a convolution"),
    ("Linear", "a matrix product"),
    ("Batch", "batch statistics"),
    ("Group", "a normalization"),
    ("Layer", "a normalization"),
    ("Instance", "a normalization"),
    ("Multihead", "attention"),
    ("Attention", "attention"),
    ("Adaptive", "pooling"),
    ("Max", "pooling"),
    ("Avg", "pooling"),
    ("Dropout", "random zeros"),
    ("Embedding", "a look-up"),
)


@dataclass(frozen=True)
class Mark:
    """One thing that was computed, in the order of computing."""

    update: int
    what: str  # "the images of the batch", "the output of features.0", "the gradient of features.0.weight"
    kind: str  # of operation, in words
    value: int  # its checksum


class Trace(Callback):
    """Marks inputs, the outputs of the innermost modules, gradients and weights of so many updates, then ends the run."""

    marks: list[Mark] = []  # of the latest run in this process: whoever traces reads them here

    def __init__(self, updates: int) -> None:
        self.updates = updates
        self._handles: list[Any] = []

    def on_fit_begin(self, trainer: Any) -> None:
        Trace.marks = []
        self.update = trainer.progress.update + 1
        for name, module in trainer.model.named_modules():
            if not list(module.children()):
                self._handles.append(module.register_forward_hook(self._output(name)))
            for own, parameter in module.named_parameters(recurse=False):
                if parameter.requires_grad:
                    whole = f"{name}.{own}" if name else own
                    hook = self._gradient(whole, module)
                    self._handles.append(parameter.register_post_accumulate_grad_hook(hook))

    def on_batch_begin(self, trainer: Any, batch: Any) -> None:
        self._mark("the order of the samples", "the data", batch.ids)
        self._mark("the labels of the batch", "the data", batch.targets)
        self._mark("the images of the batch", "decoding, augmentation or normalization", batch.images)

    def on_batch_end(self, trainer: Any, batch: Any) -> None:
        for name, parameter in trainer.model.named_parameters():
            self._mark(f"the new {name}", "the optimizer's step", parameter)
        self.update += 1
        if trainer.progress.update >= self.updates:
            raise Stopped("traced", DONE)

    def close(self) -> None:
        for handle in self._handles:
            handle.remove()

    def _output(self, name: str) -> Any:
        def note(module: nn.Module, inputs: Any, output: Any) -> None:
            if isinstance(output, Tensor) and torch.is_grad_enabled():
                self._mark(f"the output of {name or 'the model'}", kind_of(module), output)

        return note

    def _gradient(self, name: str, module: nn.Module) -> Any:
        def note(parameter: Tensor) -> None:
            if parameter.grad is not None:
                self._mark(f"the gradient of {name}", kind_of(module), parameter.grad)

        return note

    def _mark(self, what: str, kind: str, value: Tensor) -> None:
        Trace.marks.append(Mark(self.update, what, kind, int(checksum(value.detach().reshape(-1)))))


def kind_of(module: nn.Module) -> str:
    """The kind of operation of a module, in words, with its class."""
    name = type(module).__name__
    kind = next((words for beginning, words in KINDS if name.startswith(beginning)), "")
    return f"{kind}, {name}" if kind else name


def first_difference(one: list[Mark], other: list[Mark]) -> Mark | None:
    """The first thing of the second run that is not as in the first; None for two that are equal."""
    for then, now in zip(one, other, strict=False):
        if then != now:
            return now
    return None if len(one) == len(other) else Mark(0, "the number of things computed", "the run's length", 0)
