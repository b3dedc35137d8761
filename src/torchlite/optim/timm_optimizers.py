"""Optimizers of timm by name."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from inspect import signature
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from torchlite.errors import UserError


def timm_optimizer(
    params: Iterable[Tensor] | Iterable[tuple[str, Tensor]] | Iterable[dict[str, Any]],
    opt: str,
    lr: float,
    weight_decay: float = 0.0,
    momentum: float = 0.9,
    betas: Sequence[float] | None = None,
    eps: float | None = None,
) -> Optimizer:
    """timm's optimizer `opt`, as `lamb`, `lion` or `lookahead_radam`, over `params` as any torch optimizer takes them.

    `momentum` is passed on only to what has one; `betas` and `eps` of None are the optimizer's own.

    Raises:
        UserError: no optimizer of that name (the message has the closest), or it has no `betas` or `eps` to set.
    """
    import timm.optim

    known = [str(name) for name in timm.optim.list_optimizers()]
    name = opt.lower().removeprefix("lookahead_")
    if name not in known:
        closest = get_close_matches(name, known, n=3, cutoff=0.0)
        raise UserError(f"optimizer.opt={opt}: timm has no such optimizer; the closest are {', '.join(closest)}")
    options: dict[str, Any] = {key: value for key, value in (("betas", betas), ("eps", eps)) if value is not None}
    accepted = signature(timm.optim.get_optimizer_class(name, bind_defaults=False)).parameters
    for key in options:
        if key not in accepted:
            raise UserError(f"optimizer.{key}: timm's {opt} has none; set optimizer.{key}=null")
    return timm.optim.create_optimizer_v2(
        params, opt=opt, lr=lr, weight_decay=weight_decay, momentum=momentum, **options
    )
