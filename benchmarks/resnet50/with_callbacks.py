"""The untouched script with nothing changed but two of tfvolta's callbacks in fit."""

from workload import EpochClock, keras, make_dataset, parse_arguments, report

import tfvolta

arguments = parse_arguments()
shape = (arguments.image_size, arguments.image_size, 3)
model = keras.applications.ResNet50(weights=None, input_shape=shape, classes=1000)
model.compile(keras.optimizers.SGD(0.01, momentum=0.9), "sparse_categorical_crossentropy")
clock = EpochClock()
callbacks = [tfvolta.callbacks.MixedPrecision("mixed_float16"), tfvolta.callbacks.XlaJit(), clock]
history = model.fit(make_dataset(arguments), epochs=arguments.epochs, verbose=0, callbacks=callbacks)
report("with_callbacks", arguments, clock, history)
