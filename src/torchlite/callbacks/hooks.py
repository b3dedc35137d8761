"""The places in the loop where a callback is called."""

import difflib
import logging
from typing import Any

from torchlite.errors import UserError

log = logging.getLogger("torchlite")
HOOKS = (
    "on_fit_begin",  # (trainer): everything is built, nothing is trained yet; a resumed run stands where it was
    "on_epoch_begin",  # (trainer): not again where a run goes on within an epoch
    "on_batch_begin",  # (trainer, batch): before its update
    "on_batch_end",  # (trainer, batch): its update is applied
    "on_validation_begin",  # (trainer)
    "on_validation_end",  # (trainer, scores): scores maps "val/acc1" and the like to numbers
    "on_epoch_end",  # (trainer)
    "on_log",  # (trainer, values): each line of metrics.jsonl, as it is written
    "on_fit_end",  # (trainer, scores): the best weights are in the model, scores holds their test figures too
)


class Callback:
    """Something done at the hooks: override any method named in HOOKS; another name that begins with `on_` is refused.

    `trainer` is the running Trainer: `.model .optimizer .data .progress .record` are at hand, and `.stop(reason)` ends
    training after this epoch. What a resumed run needs goes into `state_dict`, as plain types and tensors.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in vars(cls):
            if name.startswith("on_") and name not in HOOKS:
                closest = difflib.get_close_matches(name, HOOKS, 1) or HOOKS
                raise UserError(
                    f"{cls.__name__}.{name} is no hook; did you mean {closest[0]}? The hooks are: {', '.join(HOOKS)}."
                )

    def on_fit_begin(self, trainer: Any) -> None: ...

    def on_epoch_begin(self, trainer: Any) -> None: ...

    def on_batch_begin(self, trainer: Any, batch: Any) -> None: ...

    def on_batch_end(self, trainer: Any, batch: Any) -> None: ...

    def on_validation_begin(self, trainer: Any) -> None: ...

    def on_validation_end(self, trainer: Any, scores: dict[str, float]) -> None: ...

    def on_epoch_end(self, trainer: Any) -> None: ...

    def on_log(self, trainer: Any, values: dict[str, float]) -> None: ...

    def on_fit_end(self, trainer: Any, scores: dict[str, float]) -> None: ...

    def close(self) -> None:
        """Called once, however the run ended: let go of files and threads."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class Hooks:
    """Calls a hook on those callbacks that override it, in the order of the config; an unused hook costs one look-up."""

    def __init__(self, callbacks: dict[str, Callback]) -> None:
        self.callbacks = callbacks
        self._listeners = {
            hook: [
                getattr(c, hook) for c in callbacks.values() if getattr(type(c), hook) is not getattr(Callback, hook)
            ]
            for hook in HOOKS
        }

    def call(self, hook: str, *args: Any) -> None:
        for listener in self._listeners[hook]:
            listener(*args)

    def close(self) -> None:
        for name, callback in self.callbacks.items():
            try:
                callback.close()
            except Exception:  # one that cannot be closed keeps none of the others, nor the result, from being so
                log.exception(f"callbacks.{name} could not be closed")

    def state_dict(self) -> dict[str, Any]:
        return {name: callback.state_dict() for name, callback in self.callbacks.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, callback in self.callbacks.items():
            if name in state:
                callback.load_state_dict(state[name])
