"""Private arrays of this repository's kernels, which Metal's compiler has to put into registers
before it knows function constants.
"""

import re

import pytest

import join
from agx import packages
from agx.frontend import Refused, optimized
from agx.opencl import translate

pytestmark = [pytest.mark.instrument, pytest.mark.build]

TEXTS = {name: text for name, text in join.texts().items() if not name.startswith("ladders")}


def largest(library):
    """The kernel with the largest numbers of each template, but for those without a translation."""
    found = {}
    for kernel in join.by_kernel(TEXTS[library])[1]:
        numbers = [int(number) for number in re.findall(r"\d+", kernel)]
        template = re.sub(r"\d+", "", kernel)
        found[template] = max(found.get(template, ([], "")), (numbers, kernel))
    return [
        kernel for template, (_, kernel) in found.items() if "simdgroup_blocked" not in template
    ]


@pytest.mark.parametrize("library", TEXTS)
def test_none_is_in_memory(library, tmp_path):
    try:
        tree = packages.tree()
    except packages.Unavailable as error:
        pytest.skip(f"instrument missing: Debian's packages of Mesa: {error}")
    refused = {}
    for kernel in largest(library):
        source = tmp_path / f"{kernel}.clcpp"
        source.write_text(translate(TEXTS[library], library, kernel).text)
        try:
            optimized(tree, source)
        except Refused as error:
            refused[kernel] = str(error)
    assert refused == {}
