// Copyright (c) 2026 mlx_norms contributors
//
// The parts of Metal's standard library that kernels use, in CUDA. Any other
// name is a compiler error. SIMD-group operations and barriers need all of
// their threads: none may have returned, unless all have.

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
static_assert(sizeof(long) == 8, "as in Metal");

// Conversions only: arithmetic is refused, as it would not be rounded to half.
struct half {
  ushort bits;

  half() = default;
  __forceinline__ explicit half(float v) {
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(v));
  }
  __forceinline__ operator float() const {
    float v;
    asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(bits));
    return v;
  }
};
half operator+(half, half) = delete;
half operator-(half, half) = delete;
half operator*(half, half) = delete;
half operator/(half, half) = delete;

// The bits of bfloat16, rounded to nearest, ties to even; of two, the low one
// first.
#if __CUDA_ARCH__ >= 800
__forceinline__ ushort bfloat_bits(float v) {
  ushort bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(v));
  return bits;
}

__forceinline__ uint bfloat_bits(float low, float high) {
  uint bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
}
#else
__forceinline__ ushort bfloat_bits(float v) {
  uint bits = __float_as_uint(v);
  bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  uint rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  return ushort((is_nan ? bits | 0x00400000u : rounded) >> 16);
}

__forceinline__ uint bfloat_bits(float low, float high) {
  return bfloat_bits(low) | uint(bfloat_bits(high)) << 16;
}
#endif

// Sums and products of two pairs of 16-bit values, halves or bfloats, each
// rounded once.
__forceinline__ uint add_pairs(uint a, uint b, bool halves) {
  uint sum;
  if (halves) {
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(sum) : "r"(a), "r"(b));
    return sum;
  }
#if __CUDA_ARCH__ >= 800
  asm("fma.rn.bf16x2 %0, %1, %2, %3;"
      : "=r"(sum)
      : "r"(a), "r"(0x3f803f80u), "r"(b));
  return sum;
#else
  return bfloat_bits(
      __uint_as_float(a << 16) + __uint_as_float(b << 16),
      __uint_as_float(a & 0xffff0000u) + __uint_as_float(b & 0xffff0000u));
#endif
}

__forceinline__ uint multiply_pairs(uint a, uint b, bool halves) {
  uint product;
  if (halves) {
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
    return product;
  }
#if __CUDA_ARCH__ >= 800
  asm("fma.rn.bf16x2 %0, %1, %2, %3;"
      : "=r"(product)
      : "r"(a), "r"(b), "r"(0x80008000u)); // -0, which changes no product
  return product;
#else
  return bfloat_bits(
      __uint_as_float(a << 16) * __uint_as_float(b << 16),
      __uint_as_float(a & 0xffff0000u) * __uint_as_float(b & 0xffff0000u));
#endif
}

namespace metal {

// Vectors, aligned so that one is loaded or stored at once.

struct alignas(8) uint2 {
  uint x, y;

  uint2() = default;
  __forceinline__ uint2(uint x, uint y) : x(x), y(y) {}
};

struct alignas(16) ulong2 {
  ulong x, y;

  ulong2() = default;
  __forceinline__ ulong2(ulong x, ulong y) : x(x), y(y) {}
};

struct alignas(16) uint3 {
  uint x, y, z;

  uint3() = default;
  __forceinline__ uint3(uint x, uint y, uint z) : x(x), y(y), z(z) {}
};

struct alignas(16) uint4 {
  uint x, y, z, w;

  uint4() = default;
  __forceinline__ uint4(uint x, uint y, uint z, uint w)
      : x(x),
        y(y),
        z(z),
        w(w) {}
  __forceinline__ uint4(uint2 a, uint2 b) : x(a.x), y(a.y), z(b.x), w(b.y) {}
  __forceinline__ uint2 xy() const {
    return uint2(x, y);
  }
  __forceinline__ uint2 zw() const {
    return uint2(z, w);
  }
};

__forceinline__ uint4 operator&(uint4 a, uint b) {
  return uint4(a.x & b, a.y & b, a.z & b, a.w & b);
}

struct alignas(8) float2 {
  float x, y;

  float2() = default;
  __forceinline__ explicit float2(float v) : x(v), y(v) {}
  __forceinline__ float2(float x, float y) : x(x), y(y) {}
};

__forceinline__ float2 operator+(float2 a, float2 b) {
  return float2(a.x + b.x, a.y + b.y);
}

__forceinline__ float2& operator+=(float2& a, float2 b) {
  return a = a + b;
}

__forceinline__ float2 operator*(float2 a, float b) {
  return float2(a.x * b, a.y * b);
}

__forceinline__ float2 operator/(float2 a, float b) {
  return float2(a.x / b, a.y / b);
}

struct half4;

struct alignas(16) float4 {
  float x, y, z, w;

  float4() = default;
  __forceinline__ explicit float4(float v) : x(v), y(v), z(v), w(v) {}
  __forceinline__ float4(float x, float y, float z, float w)
      : x(x),
        y(y),
        z(z),
        w(w) {}
  explicit float4(half4 v);
};

__forceinline__ float4& operator+=(float4& a, float4 b) {
  return a = float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

__forceinline__ float4 operator*(float4 a, float b) {
  return float4(a.x * b, a.y * b, a.z * b, a.w * b);
}

struct alignas(8) half4 {
  half x, y, z, w;

  half4() = default;
#if __CUDA_ARCH__ >= 800
  __forceinline__ explicit half4(float4 v) {
    uint2 bits;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits.x) : "f"(v.y), "f"(v.x));
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits.y) : "f"(v.w), "f"(v.z));
    memcpy(this, &bits, sizeof(bits));
  }
#else
  __forceinline__ explicit half4(float4 v) : x(v.x), y(v.y), z(v.z), w(v.w) {}
#endif
};

__forceinline__ float4::float4(half4 v) : x(v.x), y(v.y), z(v.z), w(v.w) {}

// Vectors with their elements' alignment, for loads and stores only.

struct packed_float4 {
  float x, y, z, w;

  __forceinline__ explicit packed_float4(float4 v)
      : x(v.x),
        y(v.y),
        z(v.z),
        w(v.w) {}
  __forceinline__ operator float4() const {
    return float4(x, y, z, w);
  }
};

struct packed_half4 {
  half x, y, z, w;

  __forceinline__ explicit packed_half4(half4 v)
      : x(v.x),
        y(v.y),
        z(v.z),
        w(v.w) {}
  __forceinline__ operator half4() const {
    half4 v;
    v.x = x;
    v.y = y;
    v.z = z;
    v.w = w;
    return v;
  }
};

// A kernel's pointers and scalars, and its row layouts. A kernel has only these
// two parameters: a launch's host time grows with their number.
template <int n_pointers, int n_words>
struct Arguments {
  void* pointers[n_pointers];
  uint words[n_words];
};

template <int n_pointers>
struct Arguments<n_pointers, 0> {
  void* pointers[n_pointers];
};

template <int n>
struct Layouts {
  int words[n][6];

  __forceinline__ const int* operator[](int i) const {
    return words[i];
  }
};

template <>
struct Layouts<0> { // where none is read
  __forceinline__ const int* operator[](int) const {
    return nullptr;
  }
};

// The last place of a layout in these flags (kernels/common/rows.h).
constexpr int most_layouts() {
  return 0;
}
template <typename... Flags>
constexpr int most_layouts(int flags, Flags... others) {
  int most = most_layouts(others...);
  return flags / 16 > most ? flags / 16 : most;
}

template <typename T, typename U>
__forceinline__ T as_type(U value) {
  static_assert(sizeof(T) == sizeof(U), "as_type");
  T result;
  memcpy(&result, &value, sizeof(T));
  return result;
}

// Four of the bytes of a, then b, chosen by the hex digits of `which`, lowest
// first.
__forceinline__ uint permute_bytes(uint a, uint b, uint which) {
  return __byte_perm(a, b, which);
}

enum class mem_flags { mem_none, mem_device, mem_threadgroup };

__forceinline__ void threadgroup_barrier(mem_flags) {
  __syncthreads();
}

__forceinline__ void simdgroup_barrier(mem_flags) {
  __syncwarp();
}

// Makes the compiler forget the values that were unpacked before.
__forceinline__ void keep_packed(uint4& v) {
  asm volatile("" : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w));
}

// Shared memory in vectors of 16 bytes; each thread has its own. Copies to them
// are awaited in the order in which they started, in groups: each
// group_copies() ends one.
extern __shared__ uint4 staged_vectors[];

__forceinline__ uint4* staged_vector(int i) {
  return staged_vectors + i * GROUP_SIZE + threadIdx.x;
}

// Another thread's of the same SIMD-group.
__forceinline__ const uint4* staged_vector_of_lane(int i, uint lane) {
  return staged_vectors + i * GROUP_SIZE + threadIdx.x / 32 * 32 + lane;
}

// Pairs of 16-bit elements, one of each word.
__forceinline__ uint low_halves(uint a, uint b) {
  return __byte_perm(a, b, 0x5410);
}

__forceinline__ uint high_halves(uint a, uint b) {
  return __byte_perm(a, b, 0x7632);
}

#if __CUDA_ARCH__ >= 900
__forceinline__ uint cluster_rank() {
  uint rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

__forceinline__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}

// The same thread's vector in another threadgroup of the cluster.
__forceinline__ uint4 staged_vector_of(int i, uint rank) {
  auto mine = static_cast<uint>(__cvta_generic_to_shared(staged_vector(i)));
  uint its;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(its)
               : "r"(mine), "r"(rank));
  uint4 v;
  asm volatile("ld.shared::cluster.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(its)
               : "memory");
  return v;
}
#else // without clusters
__forceinline__ uint cluster_rank() {
  return 0;
}

__forceinline__ void cluster_barrier() {}

__forceinline__ uint4 staged_vector_of(int i, uint) {
  return *staged_vector(i);
}
#endif

__forceinline__ void copy_to_stage(int i, const void* from) {
#if __CUDA_ARCH__ >= 800
  auto to = static_cast<uint>(__cvta_generic_to_shared(staged_vector(i)));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from)
               : "memory");
#else
  *staged_vector(i) = *static_cast<const uint4*>(from);
#endif
}

__forceinline__ void group_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most `pending` groups of copies are under way.
template <int pending>
__forceinline__ void await_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
#endif
}

template <typename T>
T simd_shuffle(T, int) = delete;

template <typename T>
T simd_shuffle_xor(T, int) = delete;

__forceinline__ float simd_shuffle(float v, int lane) {
  return __shfl_sync(0xffffffffu, v, lane);
}

__forceinline__ float simd_shuffle_xor(float v, int mask) {
  return __shfl_xor_sync(0xffffffffu, v, mask);
}

__forceinline__ bool simd_any(bool v) {
  return __any_sync(0xffffffffu, v);
}

// An 8x8 matrix that a SIMD-group holds: lane l has elements 2 * (l % 4) and
// the next of row l / 4. Products are summed one after the other in float32,
// which tensor cores do not do.
struct simdgroup_float8x8 {
  float first, second;
};

template <typename T, int columns, int rows>
__forceinline__ simdgroup_float8x8 make_filled_simdgroup_matrix(float v) {
  static_assert(columns == 8 && rows == 8, "simdgroup_float8x8");
  return simdgroup_float8x8{v, v};
}

__forceinline__ uint lane_in_simdgroup() {
  uint lane;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

__forceinline__ ulong matrix_offset(ulong row_elements) {
  uint lane = lane_in_simdgroup();
  return lane / 4 * row_elements + 2 * (lane % 4);
}

__forceinline__ void
simdgroup_load(simdgroup_float8x8& m, const float* from, ulong row_elements) {
  from += matrix_offset(row_elements);
  m = simdgroup_float8x8{from[0], from[1]};
}

// Loads from a matrix that begins at column origin.x of row origin.y; if it is
// transposed, `from` has its columns in place of rows.
__forceinline__ void simdgroup_load(
    simdgroup_float8x8& m,
    const float* from,
    ulong row_elements,
    ulong2 origin,
    bool transposed) {
  uint row = lane_in_simdgroup() / 4, column = lane_in_simdgroup() % 4 * 2;
  ulong step = transposed ? row_elements : 1;
  from += origin.y * row_elements + origin.x;
  from += row * (transposed ? 1 : row_elements) + column * step;
  m = simdgroup_float8x8{from[0], from[step]};
}

__forceinline__ void
simdgroup_store(const simdgroup_float8x8& m, float* to, ulong row_elements) {
  to += matrix_offset(row_elements);
  to[0] = m.first;
  to[1] = m.second;
}

// d = a * b + c
__forceinline__ void simdgroup_multiply_accumulate(
    simdgroup_float8x8& d,
    const simdgroup_float8x8& a,
    const simdgroup_float8x8& b,
    const simdgroup_float8x8& c) {
  int lane = lane_in_simdgroup();
  simdgroup_float8x8 sum = c;
  for (int k = 0; k < 8; ++k) {
    float of_row =
        simd_shuffle(k % 2 ? a.second : a.first, lane / 4 * 4 + k / 2);
    sum.first =
        ::fmaf(of_row, simd_shuffle(b.first, 4 * k + lane % 4), sum.first);
    sum.second =
        ::fmaf(of_row, simd_shuffle(b.second, 4 * k + lane % 4), sum.second);
  }
  d = sum;
}

// sums += a b for 16x16 and 16x8 values of 16 bits, halves or bfloats, by
// matrix units, which round sums of 16 products and more toward zero.
// kernels/matmul/cuda/tiles.h has the layout.
#if __CUDA_ARCH__ >= 800
#define MMA(shape, types, sums)                                            \
  asm("mma.sync.aligned." shape ".row.col.f32." types                      \
      ".f32 "                                                              \
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"    \
      : "+f"((sums)[0]), "+f"((sums)[1]), "+f"((sums)[2]), "+f"((sums)[3]) \
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y))

__forceinline__ void
matrix_multiply(uint4 a, uint2 b, bool halves, float* sums) {
  if (halves) {
    MMA("m16n8k16", "f16.f16", sums);
  } else {
    MMA("m16n8k16", "bf16.bf16", sums);
  }
}

__forceinline__ void multiply_eleven_bits(uint4 a, uint2 b, float* sums) {
  MMA("m16n8k8", "tf32.tf32", sums);
}
#undef MMA

// The first eleven bits of a float, rounded to nearest, and the float that is
// left.
__forceinline__ uint high_bits(uint bits) {
  return (bits + 0x1000u) & 0xffffe000u;
}

__forceinline__ uint low_bits(uint bits, uint high) {
  return __float_as_uint(__uint_as_float(bits) - __uint_as_float(high));
}

// Likewise for 16x8 and 8x8 floats: matrix units use eleven bits of each
// factor, so each factor is split in two. The product of both low parts, at
// most 2^-22 of the whole, is left out. If a value is not finite no sum is;
// below 2^-113 the low part loses bits.
__forceinline__ void matrix_multiply(uint4 a, uint2 b, float* sums) {
  uint4 a_high(high_bits(a.x), high_bits(a.y), high_bits(a.z), high_bits(a.w));
  uint4 a_low(
      low_bits(a.x, a_high.x),
      low_bits(a.y, a_high.y),
      low_bits(a.z, a_high.z),
      low_bits(a.w, a_high.w));
  uint2 b_high(high_bits(b.x), high_bits(b.y));
  uint2 b_low(low_bits(b.x, b_high.x), low_bits(b.y, b_high.y));
  float product[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  multiply_eleven_bits(a_low, b_high, product);
  multiply_eleven_bits(a_high, b_low, product);
  multiply_eleven_bits(a_high, b_high, product);
  for (int i = 0; i < 4; ++i) {
    sums[i] += product[i]; // to nearest, unlike matrix units
  }
}
#else // plans use other kernels
__forceinline__ void matrix_multiply(uint4, uint2, bool, float*) {
  __trap();
}

__forceinline__ void matrix_multiply(uint4, uint2, float*) {
  __trap();
}
#endif

__forceinline__ float approximate_exp2(float v) {
  float e;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(v));
  return e;
}

// exp(v) of a float16 or bfloat16 v >= 0 as CUDA's hexp has it, which MLX's ops
// take, before it is rounded.
__forceinline__ float exp_of_16_bits(float v, bool is_half) {
  float log2_e = __uint_as_float(is_half ? 0x3fb8aa3bu : 0x3fb8aa3cu);
  float e = approximate_exp2(v * log2_e);
  // The exponentials of two float16 are just below a tie, and the approximation
  // is the tie or above it: half a unit less is not.
  bool above =
      is_half && (v == 0.007297515869140625f || v == 0.0226898193359375f);
  return above ? e - 0.00048828125f : e;
}

using ::fabs;
using ::fma;
using ::max;
using ::min;

namespace precise {

__forceinline__ float exp(float v) {
  return ::expf(v);
}

__forceinline__ float erf(float v) {
  return ::erff(v);
}

__forceinline__ float rsqrt(float v) {
  return ::rsqrtf(v);
}

__forceinline__ float sqrt(float v) {
  return ::sqrtf(v);
}

__forceinline__ float exp2(float v) {
  return ::exp2f(v);
}

__forceinline__ float sin(float v) {
  return ::sinf(v);
}

__forceinline__ float cos(float v) {
  return ::cosf(v);
}

} // namespace precise

namespace fast {

__forceinline__ float exp(float v) {
  return approximate_exp2(v * 1.44269504088896341f);
}

} // namespace fast

} // namespace metal
