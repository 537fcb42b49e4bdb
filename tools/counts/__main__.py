"""Counts what the Metal kernels ask of the memory and of a threadgroup: all tables of the pages.

python tools counts            prints them
python tools counts --check    exits with 1 if a page has another
python tools counts --write    writes them into the pages
"""

import sys

from . import group_norms, layer_norm_ladder, norms, sgemm_ladder

if __name__ == "__main__":
    sys.exit(
        max(
            [
                part.main(sys.argv[1:])
                for part in (norms, group_norms, layer_norm_ladder, sgemm_ladder)
            ]
        )
    )
