"""For who changes an op or a pass: random cases; found axes lost under vmap, and bounds exceeded.

    python tools fuzz programs|numerics|shapeless --backend cpu|metal-sim|cuda --programs N --seed S
        [--jobs J] [--only SEED]

The cases are those of the seeds S to S + N - 1; a seed's case does not depend on the others. A line
per failing case says how to repeat it: with --only, which also prints the case, and for a program
the few steps of it that still fail. The exit status is 1 if any case fails.

programs: steps of a model and what people do around them, run with MLX's own norms and then
patched, without fusion, with projections in a block and in the process, and within fuse() if they
are pure.
numerics: calls of the ops with arguments of any magnitude, length and layout, and their gradients,
against float64.
shapeless: derivatives and maps of the ops over axes of 0, 1, 2 and more elements, many of them in
graphs of mx.compile(shapeless=True) that were traced at other sizes, each in processes of its own,
against the same functions of MLX's.
"""

import argparse
import subprocess
import sys

from support.variant import environment

from . import workers

BACKENDS = ("cpu", "metal-sim", "cuda", "metal")


def environment_for(backend):
    """The workers' variables. The simulated device is a package of its own, built here."""
    if backend != "metal-sim":
        return environment()
    from hostmetal.build import HostBuild

    build = HostBuild()
    build.compile()
    return environment(build.site)


def show(kind, backend, seed, variables):
    """Prints the case of a seed, from a process of its own."""
    code = (
        "import sys; from fuzz.backends import Backend; from fuzz.kinds import SHOWN; "
        f"print(SHOWN[{kind!r}]({seed}, Backend({backend!r})))"
    )
    command = [sys.executable, "-X", "faulthandler", "-c", code]
    subprocess.run(command, env=variables, cwd=workers.TOOLS)


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=["programs", "numerics", "shapeless"])
    parser.add_argument("--backend", choices=BACKENDS, default="cpu")
    parser.add_argument("--programs", type=int, default=1000, metavar="N", help="how many cases")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="the first one's")
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="processes")
    parser.add_argument("--only", type=int, metavar="SEED", help="run and show this case alone")
    given = parser.parse_args(arguments)
    variables = environment_for(given.backend)
    seeds = range(given.seed, given.seed + given.programs)
    if given.only is not None:
        seeds = [given.only]
        show(given.kind, given.backend, given.only, variables)
    ran = failed = void = 0
    for result in workers.run(
        given.kind, given.backend, seeds, jobs=given.jobs, variables=variables
    ):
        ran += 1
        void += result.void
        failed += bool(result.failures)
        if result.failures:
            more = f" (and {len(result.failures) - 1} more)" if len(result.failures) > 1 else ""
            text = " ".join(result.failures[0].split())
            repeat = f"fuzz {given.kind} --backend {given.backend} --only {result.seed}"
            print(f"seed {result.seed}: {text}{more} | python tools {repeat}", flush=True)
    print(
        f"{given.kind} on {given.backend}: {ran} ran, {failed} failed, "
        f"{void} left out, which MLX itself does not run"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
