"""A multi-layer perceptron over pixels."""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from torchlite.errors import UserError
from torchlite.models.initialization import initialize, initialize_head
from torchlite.models.norms import Norm, norm_1d


class MLP(nn.Module):
    """Logits [B, num_classes] of images [B, in_chans, image_size, image_size].

    `widths` are the features of the hidden layers; with none it is logistic regression.
    """

    def __init__(
        self,
        num_classes: int,
        in_chans: int,
        image_size: int,
        widths: Sequence[int] = (256,),
        norm: Norm | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if any(width < 1 for width in widths):
            raise UserError(f"model.widths={list(widths)}: each has to be at least 1.")
        if not 0.0 <= dropout <= 1.0:
            raise UserError(f"model.dropout={dropout}: give a probability from 0 to 1.")
        sizes = [in_chans * image_size * image_size, *widths]
        layers: list[nn.Module] = [nn.Flatten()]
        for inputs, outputs in pairwise(sizes):
            layers.append(nn.Linear(inputs, outputs, bias=norm is None))
            if norm is not None:
                layers.append(norm_1d(norm, outputs))
            layers += [nn.ReLU(inplace=True), nn.Dropout(dropout)]
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(sizes[-1], num_classes)
        initialize(self)
        initialize_head(self.head)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images))
