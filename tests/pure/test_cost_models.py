"""Architectures from rules against published numbers of parameters, and the order in which gradients appear."""

from __future__ import annotations

import pytest

from tfvolta.cost.gradients import unknown_gradients
from tfvolta.cost.models import MODELS, gradients_of_model

# Trainable parameters. ResNet, ResNeXt and EfficientNetV2: torchvision's model pages; SE-ResNeXt: Cadene's pretrained
# models; VGG, Inception and EfficientNet: keras.applications without moving averages; BERT and ELECTRA: Hugging Face's
# bert-large-uncased and electra-base-discriminator with their heads, embeddings shared.
PUBLISHED = {
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "resnext101_32x4d": 44_177_704,
    "se_resnext101_32x4d": 48_955_416,
    "vgg16": 138_357_544,
    "vgg19": 143_667_240,
    "inception_v3": 23_817_352,
    "efficientnet_b0": 5_288_548,
    "efficientnet_b4": 19_341_616,
    "efficientnet_b7": 66_347_960,
    "efficientnet_v2_s": 21_458_488,
    "bert_base": 110_106_428,
    "bert_large": 336_226_108,
    "electra_base": 109_483_009,
}
# Multiplications of a forward pass, in thousands of millions, from the papers.
WORK = {"resnet50": 4.1, "resnet152": 11.5, "vgg16": 15.5, "inception_v3": 5.7, "efficientnet_b0": 0.39}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_those_published(name: str) -> None:
    assert gradients_of_model(name).parameters == PUBLISHED[name]


@pytest.mark.parametrize("name", WORK)
def test_work_is_that_of_the_papers(name: str) -> None:
    assert sum(layer.work for layer in gradients_of_model(name).layers) / 1e9 == pytest.approx(WORK[name], rel=0.02)


@pytest.mark.parametrize("name", MODELS)
def test_gradients_appear_in_backward_order_and_all_of_them(name: str) -> None:
    gradients = gradients_of_model(name)
    ready = gradients.ready()
    moments = [moment for _, moment in ready]
    assert moments == sorted(moments) and moments[-1] == pytest.approx(1.0) and moments[0] >= 0
    assert sum(count for count, _ in ready) == gradients.parameters
    assert gradients.size == 4 * gradients.parameters


def test_the_classifier_of_vgg_comes_first_and_carries_most() -> None:
    early = sum(count for count, moment in gradients_of_model("vgg16").ready() if moment < 0.02)
    assert early > 0.85 * PUBLISHED["vgg16"]


def test_the_embedding_of_bert_comes_last() -> None:
    ready = gradients_of_model("bert_large").ready()
    assert (30522 * 1024, 1.0) in [(count, round(moment, 9)) for count, moment in ready]


def test_unknown_gradients_are_equal_parts() -> None:
    for count in (1, 7, 49, 50, 51, 1_000_003):
        gradients = unknown_gradients(count)
        assert gradients.parameters == count and not gradients.structure
        sizes = [layer.parameters for layer in gradients.layers]
        assert max(sizes) - min(sizes) <= 1
