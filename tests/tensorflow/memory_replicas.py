"""Runs out of memory with two replicas on logical CPUs; prints how far that is from the good batches alone."""

from __future__ import annotations

import json

from tests.stack import tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)

from tests.tensorflow.memory_models import greedy_model, lengths_data  # noqa: E402
from tfvolta.callbacks import OutOfMemory  # noqa: E402


def main() -> None:
    """Trains with a batch that is too long, and with the good ones alone."""
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        model, plain = greedy_model(dropout=False), greedy_model(dropout=False)
    plain.fit(lengths_data(5, 7, 9), verbose=0)
    text, callback = "", OutOfMemory()
    try:
        model.fit(lengths_data(5, 7, 9, 12, 6), verbose=0, callbacks=[callback])
    except tf.errors.ResourceExhaustedError as error:
        text = str(error)
    assert callback.record is not None
    found = {"text": text, "restored": callback.record.restored}
    weights = [(a - b).max() for a, b in zip(map(abs, model.get_weights()), map(abs, plain.get_weights())) if a.size]
    found["difference"] = float(max(abs(each) for each in weights))
    found["counts"] = [int(tf.convert_to_tensor(each.optimizer.iterations)) for each in (model, plain)]
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
