#!/usr/bin/env python3
"""What the monitors cost: ResNet-50 under tfvolta with all of them off and on, processes in turns on one GPU.

    python3 benchmarks/monitors/measure.py --output monitors.jsonl
    python3 benchmarks/monitors/measure.py --only 'xla/.*' --limit-seconds 280
    python3 benchmarks/monitors/measure.py --tiny --steps 20 --gradients-every 40     # on a CPU, to try the script

See README.md next to it for the variants and for how the cost is reckoned.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import sys
import tempfile
from typing import Any, Iterator, Optional, Sequence

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.turns import Contender, Result, take_turns  # noqa: E402
from benchmarks.turns_options import Options, add_arguments, options  # noqa: E402
from benchmarks.turns_summary import Lines, place, summaries, table  # noqa: E402
from tfvolta.measure.statistics import paired_ratio  # noqa: E402

SCRIPT = ROOT / "benchmarks" / "peers" / "keras_script.py"
MONITORS = ("throughput", "memory", "loss_scale", "tensor_cores", "compilations")
OFF = tuple(f"monitor.{name}=false" for name in MONITORS)
ALARMS = ("alarms.nan_loss=report", "alarms.max_skipped_in_row=100", "alarms.min_loss_scale=2", "alarms.action=report")
TARGET_PERCENT = 1.0


def variants(gradients_every: int) -> dict[str, tuple[str, ...]]:
    """Overrides of the default config by name: no monitor, those of the default and of gradients, and alarms too."""
    watch = (f"gradient_monitor.every_steps={gradients_every}",)
    return {
        "off": OFF,
        "gradients": watch,
        "alarms-10": (*watch, *ALARMS, "alarms.every_steps=10"),
        "alarms-1": (*watch, *ALARMS, "alarms.every_steps=1"),
    }


def contenders(arguments: argparse.Namespace, folder: pathlib.Path) -> Iterator[Contender]:
    """A process for each variant, with the step compiled and not."""
    environ = {"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ, "PYTHONUNBUFFERED": "1"}
    environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [environ.get("PYTHONPATH")])])
    kept = folder / "tuning"  # the same kernels for all variants, whose times would differ by more than a monitor costs
    kept.mkdir(parents=True, exist_ok=True)
    tuning = () if arguments.own_tuning else (f"xla.flags=[--xla_gpu_per_fusion_autotune_cache_dir={kept}]",)
    for group, jit, batch in (("xla", "auto", arguments.batch), ("no-xla", "off", arguments.plain_batch)):
        for name, settings in variants(arguments.gradients_every).items():
            full = f"{group}/{name}"
            if not re.fullmatch(arguments.only or ".*", full):
                continue
            settings = (*settings, f"xla.jit={jit}", *(tuning if jit == "auto" else ()), *arguments.set)
            overrides = [part for each in settings for part in ("--set", each)]
            script = [str(SCRIPT), "resnet50", "--steps", str(arguments.steps)]
            script += ["--tiny"] if arguments.tiny else ["--batch", str(batch)]
            run = [sys.executable, "-m", "tfvolta", "run", "--config", "tfvolta:default"]
            run += ["--directory", str(folder / full), *overrides, *script]
            yield Contender(full, group, run, environ, reference=name == "off")


def costs(chosen: Sequence[Contender], result: Result, asked: Options, window: int) -> Iterator[dict[str, Any]]:
    """Percent of a step that each variant costs, over windows of rounds that each hold one step that is looked at.

    Args:
        chosen: The contenders.
        result: What was measured.
        asked: How turns were given.
        window: Rounds of a window.
    """
    seconds: dict[str, dict[int, float]] = {}
    for row in result.rows:
        seconds.setdefault(row["contender"], {})[row["round"]] = row["seconds"]
    for each in chosen:
        off = f"{each.group}/off"
        if each.reference or not seconds.get(off) or not seconds.get(each.name):
            continue
        last = min(max(seconds[off]), max(seconds[each.name]))
        starts = range(asked.discard, last + 2 - window, window)
        pairs = [(total(seconds[each.name], at, window), total(seconds[off], at, window)) for at in starts]
        if not pairs:
            continue
        ratio = paired_ratio([mine for mine, _ in pairs], [its for _, its in pairs])
        cost = {name: round(100 * (getattr(ratio, name) - 1), 3) for name in ("estimate", "low", "high")}
        yield {"cost_percent": each.name, "against": off, "windows": len(pairs), "rounds_of_a_window": window, **cost}


def total(seconds: dict[int, float], start: int, window: int) -> float:
    """Seconds of a window of rounds."""
    return sum(seconds[number] for number in range(start, start + window))


def main(given: Optional[Sequence[str]] = None) -> int:
    arguments = parser().parse_args(given)
    window, rest = divmod(arguments.gradients_every, arguments.steps)
    if rest or not window:
        print("--gradients-every: expected a multiple of --steps, so that some rounds hold one step that is looked at")
        return 2
    with tempfile.TemporaryDirectory(prefix="monitors_") as made:
        folder = arguments.logs or pathlib.Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        chosen = list(contenders(arguments, folder))
        if not chosen:
            print("nothing matches --only")
            return 2
        asked, lines = options(arguments), Lines(arguments.output)
        lines({"place": place(asked), "command": sys.argv, "settings": variants(arguments.gradients_every)})
        result = take_turns(chosen, asked, folder, lines)
        found = summaries(chosen, result, asked)
        priced = list(costs(chosen, result, asked, window))
        for row in (*found, *priced, {"place": place(asked)}):
            lines(row)
        print("\n".join([*table(found), *(json.dumps(row) for row in priced)]))
        over = [row["cost_percent"] for row in priced if row["high"] >= TARGET_PERCENT]
        print(f"target: below {TARGET_PERCENT:g} % with its interval; not shown for: {', '.join(over) or 'none'}")
    return 130 if result.interrupted else int(bool(result.left_out))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--output", type=pathlib.Path, help="file of JSON lines that is written")
    found.add_argument("--only", default="", help="pattern of whole names, such as xla/(off|alarms-1)")
    found.add_argument("--tiny", action="store_true", help="sizes for a CPU")
    found.add_argument("--steps", type=int, default=50, help="steps of an epoch, which is a turn")
    found.add_argument("--batch", type=int, default=256, help="where the step is compiled")
    found.add_argument("--plain-batch", type=int, default=64, help="where it is not; a short step makes a cost larger")
    found.add_argument("--gradients-every", type=int, default=100, help="a multiple of --steps")
    found.add_argument("--own-tuning", action="store_true", help="each process times XLA's kernels for itself")
    found.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override for all variants")
    found.add_argument("--logs", type=pathlib.Path, help="folder for logs and evidence; a temporary one if left out")
    add_arguments(found, groups="together", rounds=13, warm_up="leaders")
    return found


if __name__ == "__main__":
    sys.exit(main())
