"""For python bench norm --backend metal-sim: counts what it asks for, as norms.py does, in JSON.

Reads a list of configs, each with a provider's name, and prints a list of the fields of
metal_sim.Counts.
"""

import json
import sys

from hostmetal.build import HostBuild, MissingCompiler

from .norms import OF_PARAMETERS
from .simulated import attached, forward_and_backward, launches


def count(described: list[dict]) -> list[dict]:
    """Totals of a call of each provider at each config, by the names of metal_sim.Counts."""
    simulator = attached()

    import mlx.core as mx

    from harness import ladder
    from harness.configs import OPS, Config

    found = []
    for of_config in described:
        provider = of_config.pop("provider")
        if of_config["op"] in OPS and provider == "ours":
            config = Config(**of_config)
            function = OPS[config.op].ours
        else:
            multiplies = of_config["op"] == "sgemm"
            config = ladder.Product(of_config["rows"]) if multiplies else Config(**of_config)
            function = ladder.function(config, provider)
        arrays = config.inputs()
        if config.op != "sgemm":  # about a mean of 0, as in the README
            arrays = [a - mx.mean(a, -1, keepdims=True) if a.ndim > 1 else a for a in arrays]
        mx.eval(arrays)
        if config.backward:
            _, part = forward_and_backward(simulator, function, arrays)
        else:
            outputs = function(*arrays)
            part = launches(simulator, *(outputs if isinstance(outputs, tuple) else [outputs]))
        found.append(_totals(part))
    return found


def _totals(of_call):
    by_array: dict[str, list[int]] = {}
    for launch in of_call:
        for name in sorted(launch.arrays & launch.result.bytes.keys()):
            kept = by_array.setdefault(name, [0, 0])
            by_array[name] = [a + b for a, b in zip(kept, launch.result.bytes[name], strict=True)]
    parameters = OF_PARAMETERS | {"weight_gradient", "bias_gradient"}
    of_rows = sum(sum(both) for name, both in by_array.items() if name not in parameters)
    return dict(
        bytes={name: both for name, both in by_array.items() if any(both)},
        of_rows=of_rows,
        barriers=sum(launch.result.barriers for launch in of_call),
        simd_ops=sum(launch.result.simd_ops for launch in of_call),
        threadgroups=sum(launch.result.threadgroups for launch in of_call),
        threadgroup_bytes=max(launch.result.threadgroup_bytes for launch in of_call),
    )


def main(arguments: list[str]) -> int:
    """Counts in a process in which the extension runs on the software device."""
    if arguments == ["--measure"]:
        print(json.dumps(count(json.load(sys.stdin))))
        return 0
    try:
        build = HostBuild()
    except MissingCompiler as error:
        raise SystemExit(str(error)) from None
    build.compile()
    variables = {"MLX_NORMS_SELF_CHECK": "0"}  # its launches are not the ops'
    return build.python("-m", "counts.configs", "--measure", variables=variables).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
