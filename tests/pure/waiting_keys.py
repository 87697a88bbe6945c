"""Keys of the schema that no knob carries yet."""

WAITING: tuple[str, ...] = ()
