"""The learning rate for another batch size."""

from torchlite.errors import UserError


def linear_lr(lr: float, batch_size: int, reference_batch_size: int) -> float:
    """The learning rate for `batch_size` samples an update, where `lr` suits `reference_batch_size`: in proportion.

    Source: Goyal et al., "Accurate, Large Minibatch SGD", 2017; shown there for SGD with warm-up. For Adam and its kin
    a square root is often nearer.

    Raises:
        UserError: a batch size below 1.
    """
    if batch_size < 1 or reference_batch_size < 1:
        raise UserError(
            f"data.batch_size={batch_size} and trainer.lr_reference_batch_size={reference_batch_size} "
            "must both be 1 or more"
        )
    return lr * batch_size / reference_batch_size
