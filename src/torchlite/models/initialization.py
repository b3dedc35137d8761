"""Initial weights by layer type."""

from torch import nn
from torch.nn.modules.batchnorm import _NormBase

HEAD_STD = 0.02  # first logits near zero: the first loss is close to log(num_classes) whatever the width


def initialize(model: nn.Module) -> None:
    """Every convolution, linear and norm layer in `model`, itself included, gets new weights from torch's generator.

    Convolutions keep the variance of the gradient (fan out), linear layers that of the signal (fan in), both for ReLU;
    norms start as the identity, biases at zero. Source: He et al., "Delving Deep into Rectifiers", 2015.
    """
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(layer, nn.Linear):
            nn.init.kaiming_normal_(layer.weight, mode="fan_in", nonlinearity="relu")
        elif isinstance(layer, (_NormBase, nn.GroupNorm, nn.LayerNorm)):
            if layer.weight is not None:
                nn.init.ones_(layer.weight)
        else:
            continue
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)


def initialize_head(head: nn.Linear | nn.Conv2d) -> None:
    """Gives the layer that makes the logits small weights (truncated normal, std 0.02) and a zero bias."""
    nn.init.trunc_normal_(head.weight, std=HEAD_STD)
    if head.bias is not None:
        nn.init.zeros_(head.bias)
