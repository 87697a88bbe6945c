"""What an expert writes by hand: mixed_float16 before the model is built, a float32 head, jit_compile=True."""

from workload import EpochClock, keras, make_dataset, parse_arguments, report

arguments = parse_arguments()
keras.mixed_precision.set_global_policy("mixed_float16")
shape = (arguments.image_size, arguments.image_size, 3)
body = keras.applications.ResNet50(weights=None, input_shape=shape, include_top=False, pooling="avg")
output = keras.layers.Dense(1000, activation="softmax", dtype="float32")(body.output)
model = keras.Model(body.input, output)
model.compile(keras.optimizers.SGD(0.01, momentum=0.9), "sparse_categorical_crossentropy", jit_compile=True)
clock = EpochClock()
history = model.fit(make_dataset(arguments), epochs=arguments.epochs, verbose=0, callbacks=[clock])
report("by_hand", arguments, clock, history)
