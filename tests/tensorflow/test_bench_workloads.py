"""Workloads of the bench: built with the published number of parameters, and they learn."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from tests.slow import once_a_bridge
from tests.stack import keras, tf
from tfvolta.bench.workloads.registry import WORKLOADS, find
from tfvolta.cost.models import gradients_of_model

# Trainable parameters. ResNet: torchvision; EfficientNet: keras.applications without moving averages; U-Net: the sum
# over the paper's layers with one input channel and one output channel.
PUBLISHED = {"resnet50": 25_557_032, "resnet152": 60_192_808, "efficientnet_b0": 5_288_548, "unet": 31_030_593}


def trainable(model: Any) -> int:
    return sum(int(np.prod(variable.shape)) for variable in model.trainable_variables)


def built(name: str) -> Any:
    keras.backend.clear_session()
    return WORKLOADS[name].build(keras, WORKLOADS[name].sizes)


@once_a_bridge
@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_those_published(name: str) -> None:
    assert trainable(built(name)) == PUBLISHED[name]


@once_a_bridge
def test_bert_large_is_the_published_encoder() -> None:
    heads = ("masked words", "next sentence")
    layers = gradients_of_model("bert_large").layers
    encoder = sum(layer.parameters for layer in layers if not layer.name.startswith(heads))
    classifier = 2 * 1024 + 2
    assert encoder == 335_141_888
    small = dataclasses.replace(WORKLOADS["bert_large"].sizes, layers=1)
    keras.backend.clear_session()
    one = trainable(WORKLOADS["bert_large"].build(keras, small))
    keras.backend.clear_session()
    two = trainable(WORKLOADS["bert_large"].build(keras, dataclasses.replace(small, layers=2)))
    assert one + 23 * (two - one) == encoder + classifier


@once_a_bridge
def test_the_transformer_is_as_large_as_the_base_model_of_the_paper() -> None:
    assert trainable(built("transformer")) == pytest.approx(65e6, rel=0.05)


@once_a_bridge
@pytest.mark.parametrize("name", ["mlp", "dlrm_small", "unet", "lstm", "bert_large", "transformer"])
def test_a_tiny_model_trains_and_learns(name: str) -> None:
    workload = WORKLOADS[name]
    keras.backend.clear_session()
    keras.utils.set_random_seed(0)
    model = workload.build(keras, workload.tiny)
    model.compile(**workload.compile_arguments(keras), jit_compile=False)
    x, y = workload.data(workload.tiny, 4 * workload.tiny.batch, 0)
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(workload.tiny.batch).repeat(12)
    losses = model.fit(data, epochs=2, verbose=0, shuffle=False).history["loss"]
    assert losses[-1] < losses[0]


def test_names_are_found_in_other_spellings() -> None:
    assert find("EfficientNet").name == "efficientnet_b0" and find("BERT-large").name == "bert_large"
