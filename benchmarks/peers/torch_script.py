#!/usr/bin/env python3
"""One of the models in PyTorch at its best: autocast float16, GradScaler, fused optimisers, torch.compile or cuDNN.

    python3 benchmarks/peers/torch_script.py resnet50              # alone: prints a JSON line for each epoch
    python3 benchmarks/peers/torch_script.py lstm --tiny           # on a CPU too, where autocast is off

Batches come from pinned host memory by a stream of their own, one step ahead of the step that takes them.
"""

from __future__ import annotations

import json
import pathlib
import sys
import time
from typing import Any, Callable

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import torch
from torch.nn import functional

from benchmarks.baton import PROFILE, STOP, Baton
from benchmarks.peers.torch_models import make_model
from benchmarks.peers.workloads import LOSS_SCALE, Workload, host, parse_arguments

KERNELS = 16  # of a profile


class HostBatches:
    """The same batch again and again, copied from pinned memory into two buffers of the device in turn.

    Args:
        tensors: The batch in host memory.
        device: Where it goes.
    """

    def __init__(self, tensors: list[Any], device: Any):
        self._cuda = device.type == "cuda"
        self._host = [each.pin_memory() if self._cuda else each for each in tensors]
        self._device, self._step = device, 0
        if self._cuda:
            self._side = torch.cuda.Stream()
            self._buffers = [[torch.empty_like(each, device=device) for each in tensors] for _ in range(2)]
            self._copied = [torch.cuda.Event() for _ in range(2)]
            self._used = [torch.cuda.Event() for _ in range(2)]
            torch.cuda.synchronize()
            self._fetch(0)

    def next(self) -> list[Any]:
        """The batch of the next step; the one after it is on its way when this returns."""
        if not self._cuda:
            return self._host
        number, self._step = self._step % 2, self._step + 1
        torch.cuda.current_stream().wait_event(self._copied[number])
        self._fetch(1 - number)
        return self._buffers[number]

    def done(self) -> None:
        """Says that all work on the batch that was given last is in the queue of the device."""
        if self._cuda:
            self._used[1 - self._step % 2].record()

    def _fetch(self, number: int) -> None:
        with torch.cuda.stream(self._side):
            self._side.wait_event(self._used[number])  # an event that was never recorded is no wait
            for buffer, tensor in zip(self._buffers[number], self._host):
                buffer.copy_(tensor, non_blocking=True)
            self._copied[number].record()


class Training:
    """A model with its optimiser, loss scale and data.

    Args:
        workload: Sizes.
        arguments: The command line.
    """

    def __init__(self, workload: Workload, arguments: Any):
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        torch.set_float32_matmul_precision("high")  # TF32, as TensorFlow has it
        torch.backends.cudnn.benchmark = True
        self.workload = workload
        self.model = make_model(workload, arguments.stride_first, arguments.residual == "half").to(self.device)
        if workload.model == "resnet50":
            self.model.to(memory_format=torch.channels_last)
        self.model.train()
        cuda = self.device.type == "cuda"
        if workload.model == "resnet50":
            self.optimizer = momentum_sgd(self.model, workload.learning_rate)
        else:
            self.optimizer = torch.optim.Adam(self.model.parameters(), workload.learning_rate, eps=1e-7, fused=True)
        self.scaler = torch.amp.GradScaler(
            self.device.type,
            init_scale=LOSS_SCALE["initial"],
            growth_interval=int(LOSS_SCALE["growth_steps"]),
            enabled=cuda,
        )
        self.batches = HostBatches(tensors_of(workload), self.device)
        self.loss_of = compiled(self._loss, arguments.compile, workload)

    def epoch(self) -> tuple[float, float]:
        """Seconds of an epoch, with the device waited for, and its mean loss."""
        began = time.perf_counter()
        total = torch.zeros((), device=self.device)
        for _ in range(self.workload.steps):
            torch.compiler.cudagraph_mark_step_begin()
            features, labels = self.batches.next()
            loss = self.loss_of(features, labels)
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.optimizer.zero_grad(set_to_none=True)
            self.batches.done()
            total += loss.detach()
        mean = float(total) / self.workload.steps
        self.synchronize()
        return time.perf_counter() - began, mean

    def synchronize(self) -> None:
        """Waits for the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def _loss(self, features: Any, labels: Any) -> Any:
        with torch.autocast(self.device.type, torch.float16, enabled=self.device.type == "cuda"):
            return functional.cross_entropy(self.model(features), labels)


def momentum_sgd(model: Any, learning_rate: float) -> Any:
    """Fused SGD whose momentum is zero before the first step, as that of every framework.

    PyTorch (2.11, ``torch/optim/sgd.py``) makes it from memory that is not initialised, for the first step to write. A
    loss scale that is still too high skips that step inside the kernel, and the second one adds to whatever was there.
    """
    found = torch.optim.SGD(model.parameters(), learning_rate, momentum=0.9, fused=True)
    for group in found.param_groups:
        for each in group["params"]:
            found.state[each]["momentum_buffer"] = torch.zeros_like(each, memory_format=torch.preserve_format)
    return found


def tensors_of(workload: Workload) -> list[Any]:
    """The batch of a workload; images as channels-last tensors of shape ``(batch, 3, height, width)``."""
    features, labels = map(torch.from_numpy, workload.data())
    if workload.model == "resnet50":
        features = features.permute(0, 3, 1, 2)  # the memory stays as it is, which is channels last
    return [features, labels.long()]


def compiled(function: Callable[..., Any], mode: str, workload: Workload) -> Callable[..., Any]:
    """The function under ``torch.compile``, except where cuDNN's LSTM is the whole model."""
    if mode == "off" or workload.model == "lstm":
        return function
    made: Callable[..., Any] = torch.compile(function, mode=None if mode == "default" else mode, dynamic=False)
    return made


def profile(training: Training) -> dict[str, float]:
    """Milliseconds a step of the longest kernels of an epoch."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiler

    seen_by = ProfilerActivity.CUDA if training.device.type == "cuda" else ProfilerActivity.CPU
    with profiler(activities=[seen_by]) as seen:
        training.epoch()
    found: dict[str, float] = {}
    for event in seen.events():
        if event.device_type == torch.autograd.DeviceType.CUDA and "#" not in event.name:  # which are annotations
            found[event.name] = found.get(event.name, 0.0) + event.time_range.elapsed_us()
    each = 1000 * training.workload.steps
    longest = sorted(found.items(), key=lambda item: -item[1])[:KERNELS]
    return {"all": round(sum(found.values()) / each, 3), **{name[:90]: round(us / each, 3) for name, us in longest}}


def facts(training: Training, first_seconds: float) -> dict[str, Any]:
    """What holds for the whole measurement."""
    cuda = training.device.type == "cuda"
    return {
        "parameters": sum(each.numel() for each in training.model.parameters() if each.requires_grad),
        "first_epoch_seconds": round(first_seconds, 2),
        "device": torch.cuda.get_device_name() if cuda else "CPU",
        "versions": {"torch": torch.__version__, "cudnn": torch.backends.cudnn.version() if cuda else None},
        **host(),
    }


def main() -> None:
    baton = Baton.from_environment()
    arguments, workload = parse_arguments()
    training = Training(workload, arguments)
    if baton is not None:
        baton.wait_for_warm_up()
    first, loss = training.epoch()
    found = {**facts(training, first), "first_loss": loss}
    word = "" if baton is None else baton.ready(**found)
    if baton is None:
        print(json.dumps(found), flush=True)
    done = 1
    while word != STOP if baton is not None else done < arguments.epochs:
        if baton is not None and word == PROFILE:
            word = baton.profiled(ms=profile(training))
            continue
        seconds, loss = training.epoch()
        done += 1
        row = {"seconds": seconds, "examples": workload.batch * workload.steps, "steps": workload.steps, "loss": loss}
        if training.device.type == "cuda":
            row["peak_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
            row["loss_scale"] = training.scaler.get_scale()
        if baton is not None:
            word = baton.report(**row)
        else:
            print(json.dumps(row), flush=True)
    if baton is None and arguments.profile:
        print(json.dumps({"profile_ms": profile(training)}), flush=True)


if __name__ == "__main__":
    main()
