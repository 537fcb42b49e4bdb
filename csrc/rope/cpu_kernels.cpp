// Copyright © 2026 mlx_norms contributors
//
// The norm's sums are those of csrc/norm/cpu, so results are bit-identical to a
// norm and a rotation after it.

#include "csrc/rope/cpu_kernels.h"
#include "csrc/cpu/clean.h"
#include "csrc/norm/cpu/statistics.h"
#include "csrc/rope/cpu_angles.h"

namespace {

void inverse_frequencies(float base, int64_t n, float* to) {
  float step = __builtin_logf(base) / static_cast<float>(n);
  for (int64_t i = 0; i < padded(n); i += kWidth) {
    Floats exponents;
    for (int j = 0; j < kWidth; ++j) {
      exponents[j] = static_cast<float>(-(i + j)) * step;
    }
    store(to + i, exponential(exponents));
  }
}

// Elements 0, 0, 1, 1 ... of n.
inline void repeat_each(const float* from, int64_t n, float* to) {
  for (int64_t i = n - 1; i >= 0; --i) {
    to[2 * i] = to[2 * i + 1] = from[i];
  }
}

void angles(const AnglesJob& job) {
  int64_t half = job.dims / 2;
  with_type(job.type, [&](auto type) {
    using T = typename decltype(type)::type;
    for_vectors(half, [&](int64_t i, auto extent) {
      auto of = sine_and_cosine(
          job.position * load(job.inverse_frequencies + i, extent));
      store(job.cosines + i, round_to<T>(of.cosine), extent);
      store(job.sines + i, round_to<T>(of.sine), extent);
    });
  });
  if (job.traditional) {
    repeat_each(job.cosines, half, job.cosines);
    repeat_each(job.sines, half, job.sines);
    for (int64_t i = 0; i < job.dims; i += 2) {
      job.sines[i] = -job.sines[i];
    }
    return;
  }
  for_vectors(half, [&](int64_t i, auto extent) {
    Floats sine = load(job.sines + i, extent);
    store(job.cosines + half + i, load(job.cosines + i, extent), extent);
    store(job.sines + half + i, sine, extent);
    store(job.sines + i, -sine, extent);
  });
}

// Each element of a vector and the one beside it, exchanged.
inline Floats swap_pairs(Floats v) {
  typedef uint64_t Pairs __attribute__((vector_size(4 * kWidth)));
  auto pairs = reinterpret_cast<Pairs>(v);
  return reinterpret_cast<Floats>(pairs << 32 | pairs >> 32);
}

// Rotates a row's first elements and hands each vector of the row, from element
// i on, to put(i, extent, vector).
template <typename T, bool kEarly, typename F>
inline void rotate(const RopeJob& job, const float* row, F put) {
  const float* cosines = job.cosines;
  const float* sines = job.sines;
  auto turn = [=](int64_t i, Floats v, Floats partner, auto extent) {
    Floats a = v * load(cosines + i, extent);
    Floats b = partner * load(sines + i, extent);
    return kEarly ? round_to<T>(round_to<T>(a) + round_to<T>(b)) : a + b;
  };
  if (job.traditional) {
    for_vectors(job.dims, [&](int64_t i, auto extent) {
      Floats v = load(row + i, extent);
      put(i, extent, turn(i, v, swap_pairs(v), extent));
    });
  } else {
    int64_t half = job.dims / 2;
    for_vectors(half, [&](int64_t i, auto extent) {
      Floats v = load(row + i, extent);
      Floats partner = load(row + half + i, extent);
      put(i, extent, turn(i, v, partner, extent));
      put(half + i, extent, turn(half + i, partner, v, extent));
    });
  }
  for_vectors(job.width - job.dims, [&](int64_t i, auto extent) {
    put(job.dims + i, extent, load(row + job.dims + i, extent));
  });
}

// Normalizes a row, with its weight and factor.
template <typename T, bool kEarly>
inline void normalize(
    const RopeJob& job,
    const RopeRow& of,
    WholeRow<float> row,
    float* to) {
  auto summed = sum_row<false>(row);
  auto statistics = row_statistics(summed, {job.eps, false, false});
  auto step = [](Floats v) { return kEarly ? round_to<T>(v) : v; };
  bool scales = of.factor != 1.0f;
  for (int64_t i = 0; i < padded(job.width); i += kWidth) {
    Floats v = step(statistics.normalize(load(row.data + i)));
    if (of.weight) {
      v = step(v * load(of.weight + i));
    }
    if (scales) {
      v = step(v * of.factor);
    }
    store(to + i, v);
  }
}

// T is the result's dtype.
template <typename T, bool kEarly>
void rope_row(const RopeJob& job, const RopeRow& of) {
  float* between = job.scratch + padded(job.width);
  WholeRow<float> row{job.scratch, job.width};
  load_rows(of.x, 0, 1, job.width, job.scratch);
  auto* y = static_cast<T*>(of.y.data);
  auto put = [=](int64_t i, auto extent, Floats v) { store(y + i, v, extent); };
  bool before = of.rotated && job.rope_first;
  if (before) {
    rotate<T, kEarly>(job, row.data, [=](int64_t i, auto extent, Floats v) {
      store(between + i, v, extent);
    });
    row = {between, job.width};
    row.pad(0.0f);
  }
  const float* result = row.data;
  if (job.normalized) {
    normalize<T, kEarly>(job, of, row, between);
    result = between;
  }
  if (of.rotated && !before) {
    rotate<T, kEarly>(job, result, put);
  } else {
    for_vectors(job.width, [&](int64_t i, auto extent) {
      put(i, extent, load(result + i, extent));
    });
  }
}

void row(const RopeJob& job, const RopeRow& of) {
  with_type(of.y.type, [&](auto type) {
    using T = typename decltype(type)::type;
    if (job.late || of.y.type == Float::f32) {
      rope_row<T, false>(job, of);
    } else {
      rope_row<T, true>(job, of);
    }
  });
}

} // namespace

namespace mlx_norms::cpu::rope {

[[gnu::visibility("default")]] extern const RopeKernels MLX_NORMS_KERNELS;
const RopeKernels MLX_NORMS_KERNELS = {
    clean<inverse_frequencies>,
    clean<angles>,
    clean<row>};

} // namespace mlx_norms::cpu::rope
