"""What the name of a score tells: which direction is better, between what it lies, and its unit. Whole words count."""

import math
import re

LESS_IS_BETTER = {"loss", "err", "error", "nll", "perplexity", "mse", "rmse", "mae", "ece", "brier", "fid"} | {
    "seconds",
    "updates",
}
MORE_IS_BETTER = {"acc", "accuracy", "auc", "auroc", "precision", "recall", "iou", "dice", "psnr", "ssim"}
SHARES = {"acc", "accuracy"}


def words(name: str) -> set[str]:
    """`val/acc1_smooth` has val, acc and smooth: confidence is no fid."""
    return set(re.split(r"[\W\d_]+", name.lower()))


def direction(name: str) -> str | None:
    """ "min" or "max", whichever is better; None where the name does not tell."""
    found = words(name)
    less, more = bool(found & LESS_IS_BETTER), bool(found & MORE_IS_BETTER)
    return None if less == more else "min" if less else "max"


def is_share(name: str) -> bool:
    return direction(name) == "max" and bool(words(name) & SHARES)


def bounds(name: str) -> tuple[float, float]:
    """Between what the score has to lie."""
    return (0, 1) if is_share(name) else (0, math.inf) if name in ("seconds", "updates") else (-math.inf, math.inf)


def with_unit(name: str) -> str:
    """The name for an axis: accuracy is a share, a loss is per image, seconds say so; others have no unit known here."""
    return name + (" (share of images)" if is_share(name) else " (mean per image)" if "loss" in words(name) else "")
