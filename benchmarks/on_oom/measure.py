#!/usr/bin/env python3
"""What ``memory.on_oom: report`` costs a step: ResNet-50 with it off and on, processes in turns on one GPU.

    python3 benchmarks/on_oom/measure.py --output on_oom.jsonl --limit-seconds 240
    python3 benchmarks/on_oom/measure.py --tiny --steps 20            # on a CPU, to try the script

See README.md next to it.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import sys
import tempfile
from typing import Iterator, Optional, Sequence

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.monitors.measure import SCRIPT, costs  # noqa: E402
from benchmarks.turns import Contender, take_turns  # noqa: E402
from benchmarks.turns_options import add_arguments, options  # noqa: E402
from benchmarks.turns_summary import Lines, place, summaries, table  # noqa: E402

VARIANTS = {"off": "memory.on_oom=off", "report": "memory.on_oom=report"}


def contenders(arguments: argparse.Namespace, folder: pathlib.Path) -> Iterator[Contender]:
    """A process for each variant, with the step compiled and not."""
    environ = {"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ, "PYTHONUNBUFFERED": "1"}
    environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [environ.get("PYTHONPATH")])])
    kept = folder / "tuning"  # the same kernels for both, whose times would differ by more than a guard costs
    kept.mkdir(parents=True, exist_ok=True)
    tuning = f"xla.flags=[--xla_gpu_per_fusion_autotune_cache_dir={kept}]"
    for group, jit, batch in (("xla", "model", arguments.batch), ("no-xla", "off", arguments.plain_batch)):
        for name, setting in VARIANTS.items():
            if not re.fullmatch(arguments.only or ".*", f"{group}/{name}"):
                continue
            settings = [setting, f"xla.jit={jit}", *([tuning] if jit == "model" and not arguments.tiny else [])]
            overrides = [part for each in (*settings, *arguments.set) for part in ("--set", each)]
            script = [str(SCRIPT), "resnet50", "--steps", str(arguments.steps)]
            script += ["--tiny"] if arguments.tiny else ["--batch", str(batch)]
            run = [sys.executable, "-m", "tfvolta", "run", "--config", "tfvolta:default"]
            run += ["--directory", str(folder / group / name), *overrides, *script]
            yield Contender(f"{group}/{name}", group, run, environ, reference=name == "off")


def main(given: Optional[Sequence[str]] = None) -> int:
    """Measures, and prints the cost of each group in percent of a step."""
    arguments = parser().parse_args(given)
    with tempfile.TemporaryDirectory(prefix="on_oom_") as made:
        folder = arguments.logs or pathlib.Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        chosen = list(contenders(arguments, folder))
        if not chosen:
            print("nothing matches --only")
            return 2
        asked, lines = options(arguments), Lines(arguments.output)
        lines({"place": place(asked), "command": sys.argv, "settings": VARIANTS})
        result = take_turns(chosen, asked, folder, lines)
        found = summaries(chosen, result, asked)
        priced = list(costs(chosen, result, asked, 1))
        for row in (*found, *priced, {"place": place(asked)}):
            lines(row)
        print("\n".join([*table(found), *(json.dumps(row) for row in priced)]))
    return 130 if result.interrupted else int(bool(result.left_out))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--output", type=pathlib.Path, help="file of JSON lines that is written")
    found.add_argument("--only", default="", help="pattern of whole names, such as xla/.*")
    found.add_argument("--tiny", action="store_true", help="sizes for a CPU")
    found.add_argument("--steps", type=int, default=25, help="steps of an epoch, which is a turn")
    found.add_argument("--batch", type=int, default=256, help="where the step is compiled")
    found.add_argument("--plain-batch", type=int, default=64, help="where it is not; a short step makes a cost larger")
    found.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override for both variants")
    found.add_argument("--logs", type=pathlib.Path, help="folder for logs and evidence; a temporary one if left out")
    add_arguments(found, groups="together", rounds=13, warm_up="leaders")
    return found


if __name__ == "__main__":
    sys.exit(main())
