"""Architectures as rules: the layers of well-known models with their parameters and work, without TensorFlow."""

from __future__ import annotations

import functools
from typing import Callable, Mapping

from tfvolta.cost.gradients import Gradients, Layer, gradients_of
from tfvolta.cost.models.efficientnet import efficientnet, efficientnet_v2_s
from tfvolta.cost.models.inception import inception_v3
from tfvolta.cost.models.resnet import resnet
from tfvolta.cost.models.transformer import bert, electra, electra_pretraining
from tfvolta.cost.models.vgg import vgg

_RULES: Mapping[str, Callable[[], list[Layer]]] = {
    "resnet50": functools.partial(resnet, (3, 4, 6, 3)),
    "resnet101": functools.partial(resnet, (3, 4, 23, 3)),
    "resnet152": functools.partial(resnet, (3, 8, 36, 3)),
    "resnext101_32x4d": functools.partial(resnet, (3, 4, 23, 3), groups=32),
    "se_resnext101_32x4d": functools.partial(resnet, (3, 4, 23, 3), groups=32, squeeze=True),
    "vgg16": functools.partial(vgg, (2, 2, 3, 3, 3)),
    "vgg19": functools.partial(vgg, (2, 2, 4, 4, 4)),
    "inception_v3": inception_v3,
    **{f"efficientnet_b{number}": functools.partial(efficientnet, number) for number in range(8)},
    "efficientnet_v2_s": efficientnet_v2_s,
    "bert_base": functools.partial(bert, 12, 768),
    "bert_large": functools.partial(bert, 24, 1024),
    "electra_base": functools.partial(electra, 12, 768, 768),
    "electra_large": functools.partial(electra, 24, 1024, 1024),
    "electra_base_pretraining": functools.partial(electra_pretraining, 12, 768, 3),
    "electra_large_pretraining": functools.partial(electra_pretraining, 24, 1024, 4),
}
MODELS = tuple(_RULES)


@functools.cache
def gradients_of_model(name: str) -> Gradients:
    """The gradients of a model by its name.

    Args:
        name: One of ``MODELS``.

    Raises:
        KeyError: There is no such model.
    """
    return gradients_of(name, _RULES[name]())
