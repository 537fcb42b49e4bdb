"""The extension built for arm64-macos and linked to the real libmlx.dylib."""

import struct

import pytest

from macos.link import MacBuild

pytestmark = pytest.mark.build


@pytest.fixture(scope="module")
def build():
    return MacBuild()


def test_extension_links(build):
    """All production sources compile for macOS and every symbol that they use is exported."""
    magic, processor = struct.unpack("<II", build.link().read_bytes()[:8])
    assert (magic, processor) == (0xFEEDFACF, 0x0100000C)  # 64-bit Mach-O, arm64


UNEXPORTED = {
    "contiguous_copy_gpu": """
#include "mlx/array.h"
#include "mlx/stream.h"
namespace mlx::core { array contiguous_copy_gpu(const array&, const Stream&); }
__attribute__((visibility("default"))) void planted(const mlx::core::array& a) {
  auto stream = mlx::core::default_stream(mlx::core::Device::gpu);
  mlx::core::contiguous_copy_gpu(a, stream);
}
""",
    "new_scoped_memory_pool": """
#include "mlx/backend/metal/device.h"
__attribute__((visibility("default"))) void planted() {
  mlx::core::metal::new_scoped_memory_pool();
}
""",
}


@pytest.mark.parametrize("symbol", UNEXPORTED)
def test_an_unexported_symbol_fails_the_link(build, symbol, tmp_path):
    with pytest.raises(RuntimeError, match=rf"undefined symbol: \w*{symbol}"):
        build.link_with(UNEXPORTED[symbol], tmp_path / "planted.so")


def test_an_unexported_symbol_is_what_fails_it(build, tmp_path):
    source = """
#include "mlx/backend/metal/device.h"
__attribute__((visibility("default"))) void* planted() {
  return &mlx::core::metal::device(mlx::core::Device::gpu);
}
"""
    build.link_with(source, tmp_path / "planted.so")
    assert (tmp_path / "planted.so").stat().st_size > 0
