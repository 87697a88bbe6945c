"""What is read from TensorFlow's words when memory ran out; the texts are TensorFlow's own."""

from __future__ import annotations

import pytest

from tfvolta.memory.exhaustion import is_exhaustion, read, size_text

_NODE = "\t [[{{node model/conv1/Conv2D}}]]\nHint: If you want to see a list of allocated tensors when OOM happens, add"
GPU = (
    "Graph execution error:\n\nOOM when allocating tensor with shape[64,112,112,64] and type half on "
    f"/job:localhost/replica:0/task:0/device:GPU:1 by allocator GPU_1_bfc\n{_NODE}"
)
LISTED = (
    "OOM when allocating tensor with shape[1024,1024] and type float on /job:localhost/replica:0/task:0/device:GPU:0 "
    "by allocator GPU_0_bfc\n\nCurrent usage from device: /job:localhost/replica:0/task:0/device:GPU:0, "
    "allocator: GPU_0_bfc\n"
    "  12.00MiB from conv1/Conv2D\n  1.50GiB from block/relu\n  Remaining 5 nodes with 8.0KiB\n"
)
XLA = (
    "Out of memory while trying to allocate 17179869184 bytes.\nBufferAssignment OOM Debugging.\nPeak buffers:\n"
    '\tBuffer 1:\n\t\tSize: 2.00GiB\n\t\tOperator: op_name="model/dense/MatMul"\n\t\tShape: f32[65536,8192]{1,0}\n'
    "\t\t==========================\n\n\tBuffer 2:\n\t\tSize: 512.00MiB\n\t\tXLA Label: fusion\n\t\tShape: f16[4]\n"
)


def test_a_tensor_on_a_gpu() -> None:
    found = read("ResourceExhaustedError", GPU)
    assert found.asked_bytes == 64 * 112 * 112 * 64 * 2 and found.shape == (64, 112, 112, 64)
    assert (found.device, found.allocator, found.dtype) == ("GPU:1", "GPU_1_bfc", "half")
    assert found.operation == "model/conv1/Conv2D" and not found.host
    assert found.first_line.startswith("OOM when allocating tensor with shape[64,112,112,64]")


def test_what_was_allocated_largest_first() -> None:
    held = read("ResourceExhaustedError", LISTED).held
    assert [(each.name, each.size_bytes) for each in held] == [
        ("block/relu", round(1.5 * 2**30)),
        ("conv1/Conv2D", 12 * 2**20),
    ]


def test_xla_names_its_peak_buffers() -> None:
    found = read("ResourceExhaustedError", XLA)
    assert found.asked_bytes == 17179869184
    assert [(each.name, each.size_bytes, each.shape) for each in found.held] == [
        ("model/dense/MatMul", 2 * 2**30, "f32[65536,8192]{1,0}"),
        ("fusion", 512 * 2**20, "f16[4]"),
    ]


def test_a_scalar_and_an_unknown_type() -> None:
    found = read("ResourceExhaustedError", "OOM when allocating tensor with shape[] and type variant on device:CPU:0")
    assert found.shape == () and found.asked_bytes is None and found.host


@pytest.mark.parametrize(
    "kind, text",
    [
        ("ResourceExhaustedError", GPU),
        ("ResourceExhaustedError", XLA),
        ("InternalError", "Dst tensor is not initialized."),
        ("InternalError", "failed to allocate 1.5GiB (1610612736 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY"),
        ("UnknownError", "Failed to get convolution algorithm ... CUDNN_STATUS_ALLOC_FAILED"),
        ("MemoryError", ""),
        ("UnknownError", "MemoryError: Unable to allocate 3.2 GiB for an array with shape (1000, 1000)"),
        ("ResourceExhaustedError", "SameWorkerRecvDone unable to allocate output tensor. Key: /job:localhost"),
        ("ResourceExhaustedError", "Failed to allocate memory for the batch of component 0"),
    ],
)
def test_words_that_mean_memory(kind: str, text: str) -> None:
    assert is_exhaustion(kind, text)


@pytest.mark.parametrize(
    "kind, text",
    [
        ("ResourceExhaustedError", "Received message larger than max (5 vs. 4)"),
        ("ResourceExhaustedError", "/data/cache.tmp; No space left on device"),
        ("ResourceExhaustedError", "/data/a.tfrecord; Too many open files"),
        ("InvalidArgumentError", "Matrix size-incompatible: In[0]: [4,3], In[1]: [4,3]"),
        ("InternalError", "ptxas returned an error"),
    ],
)
def test_words_that_mean_something_else(kind: str, text: str) -> None:
    assert not is_exhaustion(kind, text)


def test_exact_bytes_win_over_rounded_ones() -> None:
    text = "failed to allocate 1.50GiB (1610612736 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory"
    assert read("InternalError", text).asked_bytes == 1610612736
    assert read("InternalError", text).device == "GPU:0"


@pytest.mark.parametrize(
    "size, text",
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1536, "1.5 KiB"),
        (2**30, "1.0 GiB"),
        (2**48, "256 TiB"),
        (None, "unknown"),
    ],
)
def test_sizes_for_a_reader(size: object, text: str) -> None:
    assert size_text(size) == text  # type: ignore[arg-type]
