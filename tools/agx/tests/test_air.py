import struct

import pytest

from agx import air
from agx.frontend import Refused
from agx.metallib import Metallib

AIR = """target datalayout = "e-p:64:64:64"
target triple = "air64_v28-apple-macosx26.2.0"

@init.MTL_FC = internal addrspace(2) externally_initialized constant i8 undef, align 1
@has_w.22 = internal unnamed_addr addrspace(2) global i8 undef, align 1
@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 65535 }]

define internal void @static_init() #0 section "air.static_init" {
  %1 = load i8, ptr addrspace(2) @init.MTL_FC, align 1, !tbaa !31
  store i8 %1, ptr addrspace(2) @has_w.22, align 1, !tbaa !31
  ret void
}

define weak_odr void @norm(ptr addrspace(1) "air-buffer-no-alias" %0, <3 x i32> %1, i16 %2) #1 {
  %4 = load bfloat, ptr addrspace(1) %0, align 2
  %5 = fmul bfloat %4, 0xR3F80
  %6 = fpext bfloat %5 to float
  %7 = tail call float @air.simd_sum.f32(float %6) #6
  ret void
}

declare float @air.simd_sum.f32(float) #1

!air.kernel = !{!15}
!air.function_constants = !{!30}
!15 = !{ptr @norm, !16, !17}
!16 = !{}
!17 = !{!18, !19, !20}
!18 = !{i32 0, !"air.buffer", !"air.location_index", i32 0, !"air.arg_type_name", !"bfloat"}
!19 = !{i32 1, !"air.threadgroup_position_in_grid", !"air.arg_type_name", !"uint3"}
!20 = !{i32 2, !"air.thread_index_in_simdgroup", !"air.arg_type_name", !"ushort"}
!30 = !{ptr addrspace(2) @init.MTL_FC, !"bool", !"has_w", i32 20, i1 true}
"""


@pytest.fixture(scope="module")
def text():
    name, text = air.translate(AIR, {"has_w": 1}, (64, 1, 1))
    assert name == "norm"
    return text


def test_function_constants_have_values(text):
    assert "@has_w.22 = internal addrspace(2) constant i8 1" in text
    assert "static_init" not in text and "global_ctors" not in text


@pytest.mark.parametrize("end, marked", [("8", True), ("%2", False)])
def test_loops_to_a_number_are_unrolled(end, marked):
    loop = f"""  br label %8
8:
  %9 = phi i32 [ 0, %3 ], [ %10, %8 ]
  %10 = add nuw nsw i32 %9, 1
  %11 = icmp eq i32 %10, {end}
  br i1 %11, label %12, label %8, !llvm.loop !40
12:
  ret void
}}

declare"""
    with_it = AIR.replace("  ret void\n}\n\ndeclare", loop) + "!40 = distinct !{!40, !41}\n"
    _, text = air.translate(with_it, {}, (64, 1, 1))
    assert ("!40 = distinct !{!40, !41, !899999}" in text) == marked


def test_bfloat_is_its_bits(text):
    assert "%4 = load i16, ptr addrspace(1) %0" in text
    assert "%5 = call spir_func i16 @bfloat_fmul(i16 %4, i16 16256)" in text
    assert "%6 = call spir_func float @bfloat_to_float(i16 %5)" in text


def test_what_is_not_translated_of_bfloat_is_refused():
    with pytest.raises(Refused, match="fcmp"):
        air.without_bfloat("  %3 = fcmp olt bfloat %1, %2\n")


def test_intrinsics_are_functions(text):
    assert "tail call spir_func float @air_simd_sum_f32(float %6)" in text


def test_a_kernel_of_buffers_calls_apples(text):
    assert "define spir_kernel void @norm(ptr addrspace(1) noalias %buffer0)" in text
    assert "call spir_func i32 @position_threadgroup_position_in_grid(i32 2)" in text
    assert "trunc i32 %position2.0 to i16" in text
    assert "call spir_func void @body(ptr addrspace(1) %buffer0, <3 x i32> %vector1.2," in text
    assert "!{i32 64, i32 1, i32 1}" in text


def test_a_metallib_has_the_bitcode_of_its_kernels(tmp_path):
    def tag(name, data):
        return name.encode() + struct.pack("<H", len(data)) + data

    tags = b"".join(
        [
            tag("NAME", b"norm\0"),
            tag("MDSZ", struct.pack("<Q", 4)),
            tag("OFFT", struct.pack("<3Q", 0, 0, 2)),
            b"ENDT",
        ]
    )
    functions = struct.pack("<II", 1, len(tags) + 4) + tags
    start = 88
    header = b"MTLB".ljust(24, b"\0")
    header += struct.pack("<8Q", start, len(functions), 0, 0, 0, 0, start + len(functions), 8)
    file = tmp_path / "a.metallib"
    file.write_bytes(header + functions + b"__CODE__")
    library = Metallib(file)
    assert library.kernels() == ["norm"]
    assert library.bitcode("norm") == b"CODE"


def test_another_file_is_no_metallib(tmp_path):
    (tmp_path / "a").write_bytes(b"MTL2" + bytes(100))
    with pytest.raises(ValueError, match="no Metal library"):
        Metallib(tmp_path / "a")
