"""A residual network slim enough for a CPU."""

from collections.abc import Sequence

from torch import Tensor, nn

from torchlite.errors import UserError
from torchlite.models.initialization import initialize, initialize_head
from torchlite.models.norms import Norm, norm_2d


class SmallResNet(nn.Module):
    """Logits [B, num_classes] of images [B, in_chans, H, W] of any size from 8 x 8 on.

    A 3x3 convolution, then for each of `widths` (channels) as many residual blocks as `depths` says, the map halved between
    widths, then a mean over space and a linear layer. Source: He et al., "Deep Residual Learning for Image Recognition",
    2016: the blocks of ResNet-18, with the stem used for CIFAR. Each block begins as the identity (Goyal et al. 2017).

    Raises:
        UserError: `widths` is empty, or not as long as `depths`, or a number in them is below 1.
    """

    def __init__(
        self,
        num_classes: int,
        in_chans: int,
        widths: Sequence[int] = (32, 64, 128, 256),
        depths: Sequence[int] = (1, 1, 1, 1),
        norm: Norm = "batch",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if not 0.0 <= dropout <= 1.0:
            raise UserError(f"model.dropout={dropout}: give a probability from 0 to 1.")
        if not widths or len(widths) != len(depths) or any(number < 1 for number in [*widths, *depths]):
            raise UserError(
                f"model.widths={list(widths)}, model.depths={list(depths)}: give the channels of at least one group of "
                "blocks, and for each group how many blocks it has."
            )
        self.stem = nn.Sequential(*_conv(in_chans, widths[0], 3, 1, norm), nn.ReLU(inplace=True))
        blocks: list[nn.Module] = []
        inputs = widths[0]
        for group, (width, depth) in enumerate(zip(widths, depths, strict=True)):
            for index in range(depth):
                blocks.append(ResidualBlock(inputs, width, 2 if group and not index else 1, norm))
                inputs = width
        self.blocks = nn.Sequential(*blocks)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(inputs, num_classes)
        initialize(self)
        initialize_head(self.head)
        for block in blocks:
            nn.init.zeros_(block.residual[-1].weight)  # type: ignore[union-attr,index]

    def forward(self, images: Tensor) -> Tensor:
        features = self.blocks(self.stem(images)).mean(dim=(2, 3))
        return self.head(self.dropout(features))


class ResidualBlock(nn.Module):
    """Maps [B, outputs, H / stride, W / stride] of maps [B, inputs, H, W]: two convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: Norm) -> None:
        super().__init__()
        first, second = _conv(inputs, outputs, 3, stride, norm), _conv(outputs, outputs, 3, 1, norm)
        self.residual = nn.Sequential(*first, nn.ReLU(inplace=True), *second)
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else nn.Sequential(*_conv(inputs, outputs, 1, stride, norm))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, maps: Tensor) -> Tensor:
        return self.relu(self.residual(maps) + self.shortcut(maps))


def _conv(inputs: int, outputs: int, size: int, stride: int, norm: Norm) -> list[nn.Module]:
    # no bias: the norm that follows would take it away again
    conv = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)
    return [conv, norm_2d(norm, outputs)]
