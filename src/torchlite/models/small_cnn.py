"""A small convolutional network that is quick on a CPU."""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from torchlite.errors import UserError
from torchlite.models.initialization import initialize, initialize_head
from torchlite.models.norms import Norm, norm_2d


class SmallCNN(nn.Module):
    """Logits [B, num_classes] of images [B, in_chans, H, W] of any size from 8 x 8 on.

    One 3x3 convolution, norm and ReLU for each of `widths` (output channels), the map halved between them, then a mean
    over space and a linear layer. The default has 66 thousand parameters.

    Raises:
        UserError: `widths` is empty, or one is below 1; a `dropout` that is no probability.
    """

    def __init__(
        self,
        num_classes: int,
        in_chans: int,
        widths: Sequence[int] = (32, 64, 80),
        norm: Norm = "batch",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if not widths or any(width < 1 for width in widths):
            raise UserError(f"model.widths={list(widths)}: give the channels of at least one block, as [32, 64, 80].")
        if not 0.0 <= dropout <= 1.0:
            raise UserError(f"model.dropout={dropout}: give a probability from 0 to 1.")
        blocks: list[nn.Module] = []
        for inputs, outputs in pairwise([in_chans, *widths]):
            if blocks:
                # ceil_mode: a map of one pixel stays one pixel, so any depth works on any size
                blocks.append(nn.MaxPool2d(2, ceil_mode=True))
            blocks.append(_block(inputs, outputs, norm))
        self.features = nn.Sequential(*blocks)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(widths[-1], num_classes)
        initialize(self)
        initialize_head(self.head)

    def forward(self, images: Tensor) -> Tensor:
        features = self.features(images).mean(dim=(2, 3))
        return self.head(self.dropout(features))


def _block(inputs: int, outputs: int, norm: Norm) -> nn.Sequential:
    # no bias: the norm that follows would take it away again
    conv = nn.Conv2d(inputs, outputs, kernel_size=3, padding=1, bias=False)
    return nn.Sequential(conv, norm_2d(norm, outputs), nn.ReLU(inplace=True))
