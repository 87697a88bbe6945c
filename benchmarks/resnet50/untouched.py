"""The script as most people write it: float32, `compile()` defaults, no settings at all."""

from workload import EpochClock, keras, make_dataset, parse_arguments, report

arguments = parse_arguments()
shape = (arguments.image_size, arguments.image_size, 3)
model = keras.applications.ResNet50(weights=None, input_shape=shape, classes=1000)
model.compile(keras.optimizers.SGD(0.01, momentum=0.9), "sparse_categorical_crossentropy")
clock = EpochClock()
history = model.fit(make_dataset(arguments), epochs=arguments.epochs, verbose=0, callbacks=[clock])
report("untouched", arguments, clock, history)
