// Copyright © 2026 mlx_norms contributors
//
// Group norms, compiled once per instruction set (MLX_NORMS_KERNELS is its
// table). Vectors lie along the channels, and no two lanes are added up, so
// every instruction set's results are bit-identical. Rows are taken some at a
// time, in memory's order: a channel's values are then summed in registers.

#include "csrc/group_norm/cpu_kernels.h"

#include <type_traits>

#include "csrc/cpu/activations.h"
#include "csrc/cpu/simd.h"
#include "csrc/norm/cpu_types.h"

namespace {

using namespace mlx_norms::cpu;

// Calls f(row, count) for blocks of kRows rows, whose count is a constant, and
// for the rows left.
template <int kRows, typename F>
inline void for_row_blocks(int64_t rows, F f) {
  int64_t row = 0;
  for (; row + kRows <= rows; row += kRows) {
    f(row, std::integral_constant<int, kRows>{});
  }
  if (row < rows) {
    f(row, static_cast<int>(rows - row));
  }
}

template <typename T>
inline const T* row_of(const RowsIn& rows, int64_t row) {
  return static_cast<const T*>(rows.data) + row * rows.row_stride;
}

// The sum of term(i) for each i below n, in four parts.
template <typename Count, typename F>
[[gnu::always_inline]] inline Floats sum_of(Count n, F term) {
  Floats parts[4] = {};
  for (int i = 0; i < n; ++i) {
    parts[i % 4] += term(i);
  }
  return (parts[0] + parts[1]) + (parts[2] + parts[3]);
}

constexpr int kSummedRows = 16;

// Asks for the rows that are needed some rows later.
template <typename T, typename Count>
[[gnu::always_inline]] inline void
prefetch_rows(const T* x, int64_t stride, Count n) {
  constexpr int kAhead = 16;
  for (int i = 0; i < n; ++i) {
    __builtin_prefetch(x + (kAhead + i) * stride);
  }
}

// Deviations are from the mean of the rows before, so that neither a large mean
// nor an outlier costs precision.
template <typename T>
void statistics_of(const GroupStatisticsJob& job) {
  auto stride = job.x.row_stride;
  auto *means = job.mean, *rests = job.rest, *squares = job.squares;
  for_row_blocks<kSummedRows>(job.rows, [&](int64_t row, auto n) {
    auto* x = row_of<T>(job.x, row);
    auto before = static_cast<float>(job.before + row);
    auto count = static_cast<float>(n);
    float share = count / (before + count);
    float apart_weight = before * share;
    for_vectors(job.channels, [=](int64_t c, auto extent) {
      auto value = [=](int i) { return load(x + i * stride + c, extent); };
      prefetch_rows(x + c, stride, n);
      bool first = before == 0.0f;
      Floats mean = first ? value(0) : load(means + c);
      Floats rest = first ? Floats{} : load(rests + c);
      Floats square = first ? Floats{} : load(squares + c);
      Floats of_rows =
          sum_of(n, [=](int i) { return value(i) - mean; }) / count;
      square += sum_of(n, [=](int i) {
        Floats d = value(i) - mean - of_rows;
        return d * d;
      });
      Floats apart = of_rows - rest;
      square += apart * apart * apart_weight;
      Floats moved = rest + apart * share;
      Floats now = mean + moved;
      store(means + c, now);
      store(rests + c, moved - (now - mean));
      store(squares + c, square);
    });
  });
}

template <typename T, typename Y, Activation kActivation>
void normalize_rows(const GroupNormalizeJob& job) {
  auto channels = job.channels, stride = job.x.row_stride;
  auto *means = job.mean, *rstds = job.rstd, *shifts = job.shift;
  auto *weights = job.weight, *biases = job.bias;
  for_row_blocks<4>(job.rows, [&](int64_t row, auto n) {
    auto* x = row_of<T>(job.x, row);
    auto* y = static_cast<Y*>(job.y.data) + row * channels;
    for_vectors(channels, [=](int64_t c, auto extent) {
      Floats mean = load(means + c);
      Floats rstd = load(rstds + c);
      Floats shift = load(shifts + c);
      Floats weight = load(weights + c);
      Floats bias = load(biases + c);
      prefetch_rows(x + c, stride, n);
      for (int i = 0; i < n; ++i) {
        Floats v = load(x + i * stride + c, extent);
        v = ((v - mean) * rstd + shift) * weight + bias;
        store(y + i * channels + c, activated<kActivation, float>(v), extent);
      }
    });
  });
}

// Of a vector of channels: what turns x into n, and the cotangent into g.
template <Activation kActivation>
struct Differentiated {
  Floats mean, rstd, shift, weight, bias = {};

  Differentiated(const GroupVJPJob& job, int64_t c)
      : mean(load(job.mean + c)),
        rstd(load(job.rstd + c)),
        shift(load(job.shift + c)),
        weight(load(job.weight + c)) {
    if constexpr (kActivation != Activation::None) {
      bias = load(job.bias + c);
    }
  }

  Floats normalized(Floats x) const {
    return (x - mean) * rstd + shift;
  }
  Floats sloped(Floats g, Floats n) const {
    if constexpr (kActivation != Activation::None) {
      g = g * slope<kActivation>(n * weight + bias);
    }
    return g;
  }
};

template <typename T, Activation kActivation>
void sums_of(const GroupVJPJob& job) {
  auto x_stride = job.x.row_stride, g_stride = job.cotangent.row_stride;
  for_row_blocks<kSummedRows>(job.rows, [&](int64_t row, auto n) {
    auto* xs = row_of<T>(job.x, row);
    auto* gs = row_of<T>(job.cotangent, row);
    bool first = job.before + row == 0;
    for_vectors(job.channels, [&](int64_t c, auto extent) {
      Differentiated<kActivation> of(job, c);
      Floats of_bias[4] = {}, of_weight[4] = {};
      prefetch_rows(xs + c, x_stride, n);
      prefetch_rows(gs + c, g_stride, n);
      for (int i = 0; i < n; ++i) {
        Floats normalized = of.normalized(load(xs + i * x_stride + c, extent));
        Floats g = of.sloped(load(gs + i * g_stride + c, extent), normalized);
        of_bias[i % 4] += g;
        of_weight[i % 4] += g * normalized;
      }
      auto add = [&](float* sums, const Floats(&v)[4]) {
        Floats sum = (v[0] + v[1]) + (v[2] + v[3]);
        store(sums + c, first ? sum : load(sums + c) + sum);
      };
      add(job.bias_sums, of_bias);
      add(job.weight_sums, of_weight);
    });
  });
}

template <typename T, Activation kActivation>
void input_gradient(const GroupVJPJob& job) {
  auto x_stride = job.x.row_stride, g_stride = job.cotangent.row_stride;
  for_row_blocks<4>(job.rows, [&](int64_t row, auto n) {
    auto* xs = row_of<T>(job.x, row);
    auto* gs = row_of<T>(job.cotangent, row);
    auto* to = static_cast<T*>(job.input.data) + row * job.channels;
    for_vectors(job.channels, [&](int64_t c, auto extent) {
      Differentiated<kActivation> of(job, c);
      Floats along = job.along ? load(job.along + c) : Floats{};
      Floats less = job.along ? load(job.less + c) : Floats{};
      prefetch_rows(xs + c, x_stride, n);
      prefetch_rows(gs + c, g_stride, n);
      for (int i = 0; i < n; ++i) {
        Floats normalized = of.normalized(load(xs + i * x_stride + c, extent));
        Floats d = of.sloped(load(gs + i * g_stride + c, extent), normalized);
        d = d * of.weight;
        if (job.along) {
          d = d - less - normalized * along;
        }
        store(to + i * job.channels + c, d * of.rstd, extent);
      }
    });
  });
}

// Calls f with a type, as with_activation; group norms have no sigmoid.
template <typename F>
inline void with_result_activation(Activation activation, F f) {
  with_activation(activation, [&](auto flag) {
    if constexpr (flag.value != Activation::Sigmoid) {
      f(flag);
    }
  });
}

void group_statistics(const GroupStatisticsJob& job) {
  with_type(job.x.type, [&](auto type) {
    statistics_of<typename decltype(type)::type>(job);
  });
}

void group_normalize(const GroupNormalizeJob& job) {
  with_type(job.x.type, [&](auto type) {
    using T = typename decltype(type)::type;
    with_result_activation(job.activation, [&](auto activation) {
      if (job.y.type == job.x.type) {
        normalize_rows<T, T, activation.value>(job);
      } else {
        normalize_rows<T, float, activation.value>(job);
      }
    });
  });
}

void group_vjp_sums(const GroupVJPJob& job) {
  with_type(job.x.type, [&](auto type) {
    with_result_activation(job.activation, [&](auto activation) {
      sums_of<typename decltype(type)::type, activation.value>(job);
    });
  });
}

void group_vjp_input(const GroupVJPJob& job) {
  with_type(job.x.type, [&](auto type) {
    with_result_activation(job.activation, [&](auto activation) {
      input_gradient<typename decltype(type)::type, activation.value>(job);
    });
  });
}

} // namespace

namespace mlx_norms::cpu::group_norm {

extern const GroupKernels MLX_NORMS_KERNELS;
const GroupKernels MLX_NORMS_KERNELS = {
    group_statistics,
    group_normalize,
    group_vjp_sums,
    group_vjp_input};

} // namespace mlx_norms::cpu::group_norm
