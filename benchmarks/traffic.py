"""What each method asks of a device for 16 pictures: operations, copies to the host, uploads.

    python benchmarks/traffic.py                              on the device in Python of the tests
    FAIR_TTA_TEST_DEVICE=cuda python benchmarks/traffic.py    on a real one
    python benchmarks/traffic.py --layers 12                  with towers as deep as ViT-B's
    python benchmarks/traffic.py --opencv                     with views made on the CPU

Counts, not times: a tiny CLIP, 8 views, 3 targets, two sensitive attributes, the
second call with other pictures. An operation is a call of the dispatcher, about one kernel to
launch. A copy to the host is any operation that waits for the device.
"""

from __future__ import annotations

import argparse
import copy
import sys
import warnings
from pathlib import Path

TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS / part) for part in ("helpers", "oracles", "heavy/on_device")]


def main() -> None:
    import adapters_on_device as methods
    import devices
    import families

    from fair_tta.extend import AugMix
    from fair_tta.images._draw import Renderer
    from fair_tta.models import resolve

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=families.LAYERS)
    parser.add_argument("--opencv", action="store_true", help="views made on the CPU")
    options = parser.parse_args()
    families.LAYERS = options.layers
    views = AugMix(8, render=Renderer.OPENCV if options.opencv else Renderer.AUTO)
    if devices.why_not():
        sys.exit(devices.why_not())
    warnings.simplefilter("ignore")
    model, *processor = families.seeded(families.clip)
    device = devices.open_device()
    backend = resolve(copy.deepcopy(model).to(device), tuple(processor))
    print("| method | operations | copies to the host | uploads | bytes uploaded |")
    print("|---|---|---|---|---|")
    for name, adapter in {**methods.EXPORTED, **methods.OTHERS}.items():
        clf = methods.classifier(backend, adapter, views=views)
        clf.predict(methods.PICTURES[:2])
        clf._vision.forget()
        with devices.Traffic(device) as traffic:
            clf.predict(methods.PICTURES)
        print(f"| {name} | {traffic.operations:,} | {traffic.to_host} | {traffic.uploads} | "
              f"{traffic.uploaded:,} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
