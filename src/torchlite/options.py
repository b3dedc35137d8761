"""What can be set of the loop."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from torchlite.errors import UserError
from torchlite.optim import check_averaging

Direction = Literal["max", "min"]
ABOVE_ZERO = (
    "max_epochs num_threads micro_batch_size clip_grad_norm clip_grad_value lr_reference_batch_size validate_every_epochs "
    "validate_every_updates smooth_validations save_every_epochs save_every_updates save_every_minutes keep_epochs "
    "log_every_updates max_minutes limit_train_batches limit_eval_batches"
)


@dataclass(kw_only=True)
class TrainerOptions:
    """Each field is a key of `conf/trainer/default.yaml`, which gives units and legal values."""

    max_epochs: int
    device: str = "auto"
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "fp32"
    channels_last: bool | Literal["auto"] = False
    compile: bool | Literal["auto"] = False
    fused_optimizer: bool = True
    activation_checkpointing: bool = False
    deterministic: bool = True
    num_threads: int | Literal["auto"] = "auto"
    micro_batch_size: int | Literal["auto"] | None = None
    clip_grad_norm: float | None = None
    clip_grad_value: float | None = None
    clip_gradients: Callable[..., Any] | None = None
    lr_reference_batch_size: int | None = None
    decay_norm_and_bias: bool = False
    ema_decay: float | None = None
    swa_start_epoch: int | None = None
    validate_every_epochs: int = 1
    validate_every_updates: int | None = None
    smooth_validations: int = 1
    save_every_epochs: int | None = None
    save_every_updates: int | None = None
    save_every_minutes: float | None = None
    save_pause_seconds: float = 10.0
    keep_epochs: int | None = None
    max_minutes: float | None = None
    limit_train_batches: int | None = None
    limit_eval_batches: int | None = None
    monitor: str = "val/acc1"
    monitor_mode: Literal["auto", "max", "min"] = "auto"
    log_every_updates: int = 50

    def __post_init__(self) -> None:
        for name in ABOVE_ZERO.split():
            value = getattr(self, name)
            if isinstance(value, int | float) and not value > 0:
                raise UserError(f"trainer.{name}={value}: nothing would be trained or done; give a number above 0.")
        if not self.save_pause_seconds >= 0:
            raise UserError(f"trainer.save_pause_seconds={self.save_pause_seconds}: give a number from 0 upwards.")
        if self.clip_gradients is not None and (self.clip_grad_norm or self.clip_grad_value):
            raise UserError("trainer.clip_gradients replaces clip_grad_norm and clip_grad_value; set those to null.")
        check_averaging(self.ema_decay, self.swa_start_epoch, self.max_epochs)

    def check_monitor(self, metrics: dict[str, Direction]) -> None:
        """Raise UserError unless `monitor` is one of the task's scores, `{"acc1": "max", …}`; fix which direction is better."""
        directions = {f"val/{name}": better for name, better in metrics.items()}
        if self.smooth_validations > 1:
            directions |= {f"{name}_smooth": better for name, better in directions.items()}
        if self.monitor not in directions:
            raise UserError(f"trainer.monitor={self.monitor} is not measured; the scores are: {', '.join(directions)}.")
        better = directions[self.monitor]
        self.monitor_direction: Direction = better if self.monitor_mode == "auto" else self.monitor_mode
        self.monitor_is_odd = self.monitor_direction != better
