"""What looks over a repeated run while it trains."""

import logging
from typing import Any

from torchlite.callbacks import Callback
from torchlite.errors import DONE
from torchlite.stopping import Stopped

log = logging.getLogger("torchlite")


class Watch(Callback):
    """Says before the first update whether the data is the recorded one, and ends the run after so many updates.

    Args:
        fingerprint: of the recorded data.
        updates: None for all.
    """

    def __init__(self, fingerprint: str | None, updates: int | None = None) -> None:
        self.fingerprint = fingerprint
        self.updates = updates

    def on_fit_begin(self, trainer: Any) -> None:
        if trainer.data.fingerprint != self.fingerprint:
            log.warning("data: the fingerprint is not the recorded one: other images, labels or files")

    def on_batch_end(self, trainer: Any, batch: Any) -> None:
        if self.updates is not None and trainer.progress.update >= self.updates:
            raise Stopped(f"after {self.updates} updates, as asked", DONE)
