// Copyright © 2026 mlx_norms contributors
//
// Group norms, compiled once per instruction set (MLX_NORMS_KERNELS is its
// table). Vectors lie along the channels, and no two lanes are added up, so
// every instruction set's results are bit-identical. Rows are taken some at a
// time, in memory's order: a channel's values are then summed in registers.

#include "csrc/group_norm/cpu_kernels.h"

#include <type_traits>

#include "csrc/cpu/activations.h"
#include "csrc/cpu/clean.h"
#include "csrc/norm/cpu_types.h"

namespace {

using namespace mlx_norms::cpu;

// Calls f(i, part) for each i below n, with the parts, of which there are four,
// in turn. Parts by their number would be kept in memory.
template <typename Count, typename Part, typename F>
[[gnu::always_inline]] inline void
in_four_parts(Count n, Part (&parts)[4], F f) {
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    f(i, parts[0]);
    f(i + 1, parts[1]);
    f(i + 2, parts[2]);
    f(i + 3, parts[3]);
  }
  if (i < n) {
    f(i, parts[0]);
  }
  if (i + 1 < n) {
    f(i + 1, parts[1]);
  }
  if (i + 2 < n) {
    f(i + 2, parts[2]);
  }
}

// The sum of term(i) for each i below n, in four parts.
template <typename Count, typename F>
[[gnu::always_inline]] inline Floats sum_of(Count n, F term) {
  Floats parts[4] = {};
  in_four_parts(n, parts, [=](int64_t i, Floats& sum) { sum += term(i); });
  return (parts[0] + parts[1]) + (parts[2] + parts[3]);
}

// What turns x into n, and the cotangent into g.
template <Activation kActivation>
struct Differentiated {
  Floats mean, rstd, shift, weight, bias;

  Floats normalized(Floats x) const {
    return (x - mean) * rstd + shift;
  }
  Floats result(Floats x) const {
    return activated<kActivation, float>(normalized(x) * weight + bias);
  }
  Floats sloped(Floats g, Floats n) const {
    if constexpr (kActivation != Activation::None) {
      g = g * slope<kActivation>(n * weight + bias);
    }
    return g;
  }
};

// Calls f with a type, as with_activation, of those that group norms have.
template <typename F>
inline void with_result_activation(Activation activation, F f) {
  with_activation(activation, [&](auto flag) {
    constexpr auto kActivation = decltype(flag)::value;
    if constexpr (
        kActivation != Activation::Sigmoid &&
        kActivation != Activation::Relu2) {
      f(flag);
    }
  });
}

// Calls f(row, count) for blocks of kRows rows and for one that is left, whose
// count is a constant, or for the rows left.
template <int kRows, typename F>
inline void for_row_blocks(int64_t rows, F f) {
  int64_t row = 0;
  for (; row + kRows <= rows; row += kRows) {
    f(row, std::integral_constant<int, kRows>{});
  }
  if (row + 1 == rows) {
    f(row, std::integral_constant<int, 1>{});
  } else if (row < rows) {
    f(row, static_cast<int>(rows - row));
  }
}

template <typename T>
inline const T* row_of(const RowsIn& rows, int64_t row) {
  return static_cast<const T*>(rows.data) + row * rows.row_stride;
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
  auto stride = job.x.row_stride, y_stride = job.y_stride;
  auto *means = job.mean, *rstds = job.rstd, *shifts = job.shift;
  auto *weights = job.weight, *biases = job.bias;
  for_row_blocks<4>(job.rows, [&](int64_t row, auto n) {
    auto* x = row_of<T>(job.x, row);
    auto* y = static_cast<Y*>(job.y.data) + row * y_stride;
    for_vectors(job.channels, [=](int64_t c, auto extent) {
      Differentiated<kActivation> of{
          load(means + c),
          load(rstds + c),
          load(shifts + c),
          load(weights + c),
          load(biases + c)};
      prefetch_rows(x + c, stride, n);
      for (int i = 0; i < n; ++i) {
        Floats v = of.result(load(x + i * stride + c, extent));
        store(y + i * y_stride + c, v, extent);
      }
    });
  });
}

template <Activation kActivation>
inline Differentiated<kActivation> differentiated(
    const GroupVJPJob& job,
    int64_t c) {
  bool biased = kActivation != Activation::None;
  return {
      load(job.mean + c),
      load(job.rstd + c),
      load(job.shift + c),
      load(job.weight + c),
      biased ? load(job.bias + c) : Floats{}};
}

template <typename T, Activation kActivation>
void sums_of(const GroupVJPJob& job) {
  auto x_stride = job.x.row_stride, g_stride = job.cotangent.row_stride;
  for_row_blocks<kSummedRows>(job.rows, [&](int64_t row, auto n) {
    auto* xs = row_of<T>(job.x, row);
    auto* gs = row_of<T>(job.cotangent, row);
    bool first = job.before + row == 0;
    for_vectors(job.channels, [&](int64_t c, auto extent) {
      auto of = differentiated<kActivation>(job, c);
      struct Sums {
        Floats of_bias, of_weight;
      } parts[4] = {};
      prefetch_rows(xs + c, x_stride, n);
      prefetch_rows(gs + c, g_stride, n);
      in_four_parts(n, parts, [&](int64_t i, Sums& sums) {
        Floats normalized = of.normalized(load(xs + i * x_stride + c, extent));
        Floats g = of.sloped(load(gs + i * g_stride + c, extent), normalized);
        sums.of_bias += g;
        sums.of_weight += g * normalized;
      });
      auto add = [&](float* sums, Floats Sums::* of) {
        Floats sum =
            (parts[0].*of + parts[1].*of) + (parts[2].*of + parts[3].*of);
        store(sums + c, first ? sum : load(sums + c) + sum);
      };
      add(job.bias_sums, &Sums::of_bias);
      add(job.weight_sums, &Sums::of_weight);
    });
  });
}

template <typename T, Activation kActivation>
void input_gradient(const GroupVJPJob& job) {
  auto x_stride = job.x.row_stride, g_stride = job.cotangent.row_stride;
  for_row_blocks<4>(job.rows, [&](int64_t row, auto n) {
    auto* xs = row_of<T>(job.x, row);
    auto* gs = row_of<T>(job.cotangent, row);
    auto* to = static_cast<T*>(job.input.data) + row * job.input_stride;
    for_vectors(job.channels, [&](int64_t c, auto extent) {
      auto of = differentiated<kActivation>(job, c);
      Floats mean_wgn = job.mean_wgn ? load(job.mean_wgn + c) : Floats{};
      Floats mean_wg = job.mean_wgn ? load(job.mean_wg + c) : Floats{};
      prefetch_rows(xs + c, x_stride, n);
      prefetch_rows(gs + c, g_stride, n);
      for (int i = 0; i < n; ++i) {
        Floats normalized = of.normalized(load(xs + i * x_stride + c, extent));
        Floats d = of.sloped(load(gs + i * g_stride + c, extent), normalized);
        d = d * of.weight;
        if (job.mean_wgn) {
          d = d - mean_wg - normalized * mean_wgn;
        }
        store(to + i * job.input_stride + c, d * of.rstd, extent);
      }
    });
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

void group_lane_factors(const LaneFactorsJob& job) {
  for (int64_t i = 0; i < job.lanes; i += kWidth) {
    Floats v = load(job.variance + i) / job.elements;
    // inf would make the group zeros.
    v = v <= __FLT_MAX__ ? v : splat(__builtin_nanf(""));
    Floats rstd = v + job.eps;
    for (int j = 0; j < kWidth; ++j) {
      rstd[j] = 1.0f / __builtin_sqrtf(rstd[j]);
    }
    store(job.variance + i, v);
    store(job.rstd + i, rstd);
    store(job.shift + i, -load(job.rest + i) * rstd);
  }
}

} // namespace

namespace mlx_norms::cpu::group_norm {

[[gnu::visibility("default")]] extern const GroupKernels MLX_NORMS_KERNELS;
const GroupKernels MLX_NORMS_KERNELS = {
    clean<group_statistics>,
    clean<group_normalize>,
    clean<group_vjp_sums>,
    clean<group_vjp_input>,
    clean<group_lane_factors>};

} // namespace mlx_norms::cpu::group_norm
