"""For who changes C++: builds what has changed, and runs tests with it, in seconds.

    python tools rebuild [pytest argument ...]

The build is in build/rebuilt: the first takes as long as pip install, later ones seconds.
"""

import sys

from support.variant import ROOT, Variant

if __name__ == "__main__":
    variant = Variant(ROOT / "build" / "rebuilt")
    print("Builds in build/rebuilt.", flush=True)
    try:
        variant.compile()
    except RuntimeError as error:
        sys.exit(str(error))
    sys.exit(variant.pytest(*sys.argv[1:]).returncode)
