"""For fuzz: a process that reads seeds from stdin and writes results to stdout, one per line.

    python -m fuzz.worker programs|numerics|shapeless --backend NAME

A line with a string says whose norms run next, "stock" or "ours".
"""

import argparse
import faulthandler
import json
import os
import sys

from .backends import DEVICES, Backend
from .kinds import FAILURES, FORKING


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=FAILURES)
    parser.add_argument("--backend", choices=DEVICES, required=True)
    arguments = parser.parse_args()
    faulthandler.enable()
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # keeps what libraries print out of the results

    def tell(told):
        print(json.dumps(told), file=results, flush=True)

    name = arguments.backend
    backend = name if arguments.kind in FORKING else Backend(name, tell)
    tell("ready")
    for line in sys.stdin:
        failures = FAILURES[arguments.kind](int(line), backend)
        tell(dict(failures=failures or [], void=failures is None))


if __name__ == "__main__":
    main()
