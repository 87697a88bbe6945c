"""The comparison's Keras models take the common initial values, every weight of them."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.peers import keras_models
from benchmarks.peers.initial_values import initial_values
from benchmarks.peers.workloads import TINY
from tests.stack import keras


@pytest.mark.parametrize("name", list(TINY))
def test_no_weight_of_a_model_is_left_as_keras_drew_it(name: str) -> None:
    workload = TINY[name]
    if name == "resnet50":
        model = keras_models.resnet(keras, workload.size, workload.classes, workload.width, workload.depth)
    elif name == "bert_large":
        sizes = (workload.depth[0], workload.width, workload.heads, workload.size)
        model = keras_models.encoder(keras, sizes, workload.words, workload.classes)
    else:
        sizes3 = (workload.depth[0], workload.width, workload.size)
        model = keras_models.sequences(keras, sizes3, workload.words, workload.classes)
    values = dict(initial_values(workload))
    assert {layer.name for layer in model.layers if layer.weights} == set(values)
    for layer, arrays in values.items():
        model.get_layer(layer).set_weights(arrays)
        assert all(np.array_equal(a, b) for a, b in zip(model.get_layer(layer).get_weights(), arrays))
