// Copyright © 2026 mlx_norms contributors
//
// Norms whose elements do not adjoin: each lane of a vector has statistics of
// its own, and what they are taken over are rows. No two lanes are added up but
// for gradients of parameters of rows, which are in one order, so every
// instruction set's results are bit-identical. Rows are taken some at a time,
// in memory's order: a lane's values are then summed in registers.

#include <type_traits>

#include "csrc/cpu/activations.h"
#include "csrc/cpu/pairwise_sum.h"
#include "csrc/norm/cpu/compensated_sum.h"
#include "csrc/norm/cpu/level.h"
#include "csrc/norm/cpu_types.h"

namespace {

// The sum of term(i), of K sums, for each i below n: in four parts in turn,
// unless they would not be kept in registers. Nor would parts by their number.
template <int K, typename Count, typename F>
[[gnu::always_inline]] inline Term<K> sum_of(Count n, F term) {
  constexpr int kParts = K > 2 ? 1 : 4;
  Term<K> parts[kParts] = {};
  auto add = [&](int64_t i, Term<K>& sum) {
    Term<K> t = term(i);
    for (int k = 0; k < K; ++k) {
      sum.v[k] += t.v[k];
    }
  };
  if constexpr (kParts == 1) {
    for (int64_t i = 0; i < n; ++i) {
      add(i, parts[0]);
    }
    return parts[0];
  } else {
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
      add(i, parts[0]);
      add(i + 1, parts[1]);
      add(i + 2, parts[2]);
      add(i + 3, parts[3]);
    }
    if (i < n) {
      add(i, parts[0]);
    }
    if (i + 1 < n) {
      add(i + 1, parts[1]);
    }
    if (i + 2 < n) {
      add(i + 2, parts[2]);
    }
    Term<K> sum;
    for (int k = 0; k < K; ++k) {
      sum.v[k] =
          (parts[0].v[k] + parts[1].v[k]) + (parts[2].v[k] + parts[3].v[k]);
    }
    return sum;
  }
}

// What turns x into n: without center, the factor alone.
template <bool kCenter>
struct NormalizedLane {
  Floats mean, rstd, shift;

  NormalizedLane(LaneScale by, int64_t lane)
      : mean(kCenter ? load(by.mean + lane) : Floats{}),
        rstd(load(by.rstd + lane)),
        shift(kCenter ? load(by.shift + lane) : Floats{}) {}

  Floats operator()(Floats x) const {
    return kCenter ? (x - mean) * rstd + shift : x * rstd;
  }
};

// Adds v to a sum, which may be compensated, or begins it.
inline void add(CompensatedSum to, int64_t lane, Floats v, bool first) {
  if (!to.error) {
    store(to.sum + lane, first ? v : load(to.sum + lane) + v);
  } else if (first) {
    store(to.sum + lane, v);
    store(to.error + lane, Floats{});
  } else {
    add_compensated(to, lane, v);
  }
}

// Calls f with a type, as with_activation, of those that norms have: by lane
// neither a sigmoid nor relu^2.
template <bool kByRow, typename F>
inline void with_result_activation(Activation activation, F f) {
  with_activation(activation, [&](auto flag) {
    constexpr auto kActivation = decltype(flag)::value;
    if constexpr (
        kByRow ||
        (kActivation != Activation::Sigmoid &&
         kActivation != Activation::Relu2)) {
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
template <int kWrite = 0, typename T, typename Count>
[[gnu::always_inline]] inline void
prefetch_rows(const T* x, int64_t stride, Count n, int64_t ahead = 16) {
  for (int i = 0; i < n; ++i) {
    __builtin_prefetch(x + (ahead + i) * stride, kWrite);
  }
}

// Rows of a column may be long: those are fetched for which memory takes long
// enough.
template <typename T>
inline int64_t rows_ahead(int64_t lanes) {
  constexpr int64_t kAhead = 2048 / sizeof(T);
  return (kAhead + lanes - 1) / lanes;
}

// Deviations are from the mean of the rows before, so that neither a large mean
// nor an outlier costs precision: what their squares have too much is no more
// than what becomes of them.
template <typename T, typename G, bool kCenter, bool kGradients>
void statistics_of(const LaneStatisticsJob& job) {
  auto stride = job.x.row_stride, g_stride = job.cotangent.row_stride;
  for_row_blocks<kSummedRows>(job.rows, [&](int64_t row, auto n) {
    auto* x = row_of<T>(job.x, row);
    auto* g = row_of<G>(job.cotangent, row);
    auto* weight = job.weight;
    auto before = static_cast<float>(job.before + row);
    auto count = static_cast<float>(n);
    float share = count / (before + count);
    bool first = job.before + row == 0;
    for_vectors(job.lanes, [=, &job](int64_t c, auto extent) {
      auto value = [=](int64_t i) { return load(x + i * stride + c, extent); };
      Floats mean = {}, rest = {};
      if (kCenter && first) {
        mean = value(0);
        auto sum = sum_of<1>(
            n, [=](int64_t i) -> Term<1> { return {value(i) - mean}; });
        mean += sum.v[0] / count;
      } else if (kCenter) {
        mean = load(job.mean + c);
        rest = load(job.rest + c);
      }
      auto sum = sum_of<1 + kCenter + 2 * kGradients>(n, [=](int64_t i) {
        prefetch_rows(x + i * stride + c, stride, 1);
        Floats d = kCenter ? value(i) - mean : value(i);
        if constexpr (kGradients) {
          prefetch_rows(g + i * g_stride + c, g_stride, 1);
          Floats wg =
              load(g + i * g_stride + c, extent) * splat(weight[row + i]);
          if constexpr (kCenter) {
            return Term<4>{d * d, wg * d, wg, d};
          } else {
            return Term<3>{d * d, wg * d, wg};
          }
        } else if constexpr (kCenter) {
          return Term<2>{d * d, d};
        } else {
          return Term<1>{d * d};
        }
      });
      Floats square = sum.v[0];
      if constexpr (!kCenter) {
        store(job.mean + c, Floats{});
      } else {
        Floats of_rows = sum.v[1 + 2 * kGradients] / count;
        Floats apart = of_rows - rest;
        square += apart * apart * (before * share) - of_rows * of_rows * count;
        Floats moved = rest + apart * share;
        Floats now = mean + moved;
        store(job.mean + c, now);
        store(job.rest + c, moved - (now - mean));
        if constexpr (kGradients) {
          Floats earlier = first ? Floats{} : load(job.bias_sums.sum + c);
          sum.v[1] -= moved * sum.v[2] + (moved - rest) * earlier;
        }
      }
      add(job.squares, c, square, first);
      if constexpr (kGradients) {
        add(job.weight_sums, c, sum.v[1], first);
        add(job.bias_sums, c, sum.v[2], first);
      }
    });
  });
}

template <
    typename T,
    typename Y,
    Activation kActivation,
    bool kByRow,
    bool kCenter>
void normalize_rows(const LaneNormJob& job) {
  auto stride = job.x.row_stride, y_stride = job.y_stride;
  auto by = job.by;
  auto *weights = job.weight, *biases = job.bias;
  bool early = kByRow && job.early;
  auto ahead = kByRow ? rows_ahead<T>(job.lanes) : 16;
  for_row_blocks<kByRow ? 1 : 4>(job.rows, [=, &job](int64_t row, auto n) {
    auto* x = row_of<T>(job.x, row);
    auto* y = static_cast<Y*>(job.y.data) + row * y_stride;
    Floats row_weight = kByRow ? splat(weights[row]) : Floats{};
    Floats row_bias = kByRow ? splat(biases[row]) : Floats{};
    for_vectors(job.lanes, [=](int64_t c, auto extent) {
      NormalizedLane<kCenter> normalized(by, c);
      Floats weight = kByRow ? row_weight : load(weights + c);
      Floats bias = kByRow ? row_bias : load(biases + c);
      prefetch_rows(x + c, stride, n, ahead);
      if (kByRow) {
        prefetch_rows<1>(y + c, y_stride, n, ahead);
      }
      for (int i = 0; i < n; ++i) {
        Floats v = normalized(load(x + i * stride + c, extent));
        if (early) {
          v = round_to<Y>(v) * weight + bias;
          if constexpr (kActivation != Activation::None) {
            v = activated<kActivation, Y>(round_to<Y>(v));
          }
        } else {
          v = activated<kActivation, float>(v * weight + bias);
        }
        store(y + i * y_stride + c, v, extent);
      }
    });
  });
}

// What turns x into n, and the cotangent into g, at a vector of some rows.
template <Activation kActivation, bool kByRow>
struct Differentiated {
  NormalizedLane<true> normalized;
  Floats weight, bias;

  Differentiated(const LaneVJPJob& job, int64_t c, int64_t row)
      : normalized(job.by, c),
        weight(kByRow ? splat(job.weight[row]) : load(job.weight + c)),
        bias(kActivation == Activation::None ? Floats{} : load(job.bias + c)) {}

  Floats sloped(Floats g, Floats n) const {
    if constexpr (kActivation != Activation::None) {
      g = g * slope<kActivation>(n * weight + bias);
    }
    return g;
  }
};

template <typename T, typename G, Activation kActivation, bool kByRow>
void sums_of(const LaneVJPJob& job) {
  constexpr int kRows = kByRow ? 1 : kSummedRows;
  auto x_stride = job.x.row_stride, g_stride = job.cotangent.row_stride;
  for_row_blocks<kRows>(job.rows, [&](int64_t row, auto n) {
    auto* xs = row_of<T>(job.x, row);
    auto* gs = row_of<G>(job.cotangent, row);
    bool first = job.before + row == 0;
    for_vectors(job.lanes, [&](int64_t c, auto extent) {
      Differentiated<kActivation, kByRow> of(job, c, row);
      prefetch_rows(xs + c, x_stride, n);
      prefetch_rows(gs + c, g_stride, n);
      auto sum = sum_of<2>(n, [&](int64_t i) -> Term<2> {
        Floats normalized = of.normalized(load(xs + i * x_stride + c, extent));
        Floats g = of.sloped(load(gs + i * g_stride + c, extent), normalized);
        g = kByRow ? g * of.weight : g;
        return {g, g * normalized};
      });
      add(job.bias_sums, c, sum.v[0], first);
      add(job.weight_sums, c, sum.v[1], first);
    });
  });
}

template <typename T, Activation kActivation>
void input_gradient(const LaneVJPJob& job) {
  auto x_stride = job.x.row_stride, g_stride = job.cotangent.row_stride;
  for_row_blocks<4>(job.rows, [&](int64_t row, auto n) {
    auto* xs = row_of<T>(job.x, row);
    auto* gs = row_of<T>(job.cotangent, row);
    auto* to = static_cast<T*>(job.input.data) + row * job.input_stride;
    for_vectors(job.lanes, [&](int64_t c, auto extent) {
      Differentiated<kActivation, false> of(job, c, row);
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
        d = d * of.normalized.rstd;
        store(to + i * job.input_stride + c, d, extent);
      }
    });
  });
}

// Adds what the latest rows have to their sums, unless they are not wanted.
inline void add_rows(CompensatedSum to, int64_t first, const float* rows) {
  for (int i = 0; to.sum && i < kSummedRows; i += kWidth) {
    add_compensated(to, first + i, load(rows + i));
  }
}

// Sums each row's gradients of parameters over kSumLanes at a time.
template <typename T, typename G, bool kCenter, bool kSums>
void row_gradients(const LaneVJPJob& job) {
  struct RowSums {
    Floats of_weight[kVectors], of_bias[kVectors];
  };
  auto by = job.by;
  auto *of_wgn = job.mean_wgn, *of_wg = job.mean_wg;
  auto ahead = rows_ahead<T>(job.lanes);
  auto x_ahead = ahead * job.x.row_stride;
  auto g_ahead = ahead * job.cotangent.row_stride;
  auto to_ahead = ahead * job.input_stride;
  alignas(64) float pending[kMaxLanes / kSumLanes][2][kSummedRows];
  for (int64_t row = 0; row < job.rows; ++row) {
    auto* x = row_of<T>(job.x, row);
    auto* g = row_of<G>(job.cotangent, row);
    auto* to = static_cast<T*>(job.input.data);
    to = to ? to + row * job.input_stride : nullptr;
    Floats weight = splat(job.weight[row]);
    auto vector = [=](int64_t c, auto extent, int j, RowSums& sums) {
      __builtin_prefetch(x + x_ahead + c);
      __builtin_prefetch(g + g_ahead + c);
      NormalizedLane<kCenter> normalized(by, c);
      Floats n = normalized(load(x + c, extent));
      Floats cotangent = load(g + c, extent);
      if (kSums) {
        sums.of_weight[j] += cotangent * n;
        sums.of_bias[j] += cotangent;
      }
      if (!to) {
        return;
      }
      __builtin_prefetch(to + to_ahead + c, 1);
      Floats d = cotangent * weight - n * load(of_wgn + c);
      if (kCenter) {
        d = d - load(of_wg + c);
      }
      store(to + c, d * normalized.rstd, extent);
    };
    for (int64_t c = 0; c < job.lanes;) {
      auto part = c / kSumLanes;
      auto end = c + kSumLanes < job.lanes ? c + kSumLanes : job.lanes;
      RowSums sums = {};
      for (; c + kLanes <= end; c += kLanes) {
#pragma GCC unroll 8
        for (int j = 0; j < kVectors; ++j) {
          vector(c + j * kWidth, Whole{}, j, sums);
        }
      }
      if (c < end) { // apart, so that the loop's sums stay in registers
        RowSums rest = sums;
        for_vectors(end - c, [&, first = c](int64_t k, auto extent) {
          vector(first + k, extent, static_cast<int>(k / kWidth), rest);
        });
        sums = rest;
        c = end;
      }
      if (kSums) {
        pending[part][0][row % kSummedRows] = sum_lanes(sums.of_weight);
        pending[part][1][row % kSummedRows] = sum_lanes(sums.of_bias);
      }
    }
    if (kSums && ((row + 1) % kSummedRows == 0 || row + 1 == job.rows)) {
      auto first = row / kSummedRows * kSummedRows;
      for (int part = 0; part * kSumLanes < job.lanes; ++part) {
        add_rows(job.weight_gradients[part], first, pending[part][0]);
        add_rows(job.bias_gradients[part], first, pending[part][1]);
      }
    }
  }
}

// 1 / sqrt(v + eps), or as the root has it.
inline Floats inverse_roots(Root root, Floats v) {
  v = root.eps_bounds ? v : v + root.eps;
  for (int j = 0; j < kWidth; ++j) {
    v[j] = __builtin_sqrtf(v[j]);
  }
  if (root.eps_bounds) {
    v = v < root.eps ? splat(root.eps) : v;
  }
  return 1.0f / v;
}

} // namespace

namespace mlx_norms::cpu::MLX_NORMS_LEVEL {

void lane_statistics(const LaneStatisticsJob& job) {
  with_type(job.x.type, [&](auto x) {
    using T = typename decltype(x)::type;
    with_flag(!job.uncentered, [&](auto center) {
      constexpr bool kCenter = decltype(center)::value;
      if (!job.cotangent.data) {
        return statistics_of<T, T, kCenter, false>(job);
      }
      with_type(job.cotangent.type, [&](auto g) {
        statistics_of<T, typename decltype(g)::type, kCenter, true>(job);
      });
    });
  });
}

void lane_factors(const LaneFactorsJob& job) {
  for (int64_t i = 0; i < job.lanes; i += kWidth) {
    Floats v = load(job.variance + i) / job.elements;
    if (!job.uncentered) { // inf would make the lane zeros
      v = v <= __FLT_MAX__ ? v : splat(__builtin_nanf(""));
    }
    Floats rstd = inverse_roots(job.root, v);
    rstd = replace_from(rstd, job.lanes - i, 0.0f);
    store(job.variance + i, v);
    store(job.rstd + i, rstd);
    bool none = job.uncentered;
    store(job.shift + i, none ? splat(-0.0f) : -load(job.rest + i) * rstd);
  }
}

void lane_norm(const LaneNormJob& job) {
  with_type(job.x.type, [&](auto x) {
    using T = typename decltype(x)::type;
    with_flag(job.by_row, [&](auto by_row) {
      constexpr bool kByRow = decltype(by_row)::value;
      with_type(job.y.type, [&](auto y) {
        using Y = typename decltype(y)::type;
        if constexpr (
            kByRow || std::is_same_v<Y, T> || std::is_same_v<Y, float>) {
          with_result_activation<kByRow>(job.activation, [&](auto activation) {
            constexpr auto kActivation = decltype(activation)::value;
            if (kByRow && job.uncentered) {
              normalize_rows<T, Y, kActivation, kByRow, !kByRow>(job);
            } else {
              normalize_rows<T, Y, kActivation, kByRow, true>(job);
            }
          });
        }
      });
    });
  });
}

void lane_sums(const LaneVJPJob& job) {
  with_type(job.x.type, [&](auto x) {
    using T = typename decltype(x)::type;
    if (!job.by_row) {
      return with_result_activation<false>(job.activation, [&](auto flag) {
        sums_of<T, T, decltype(flag)::value, false>(job);
      });
    }
    with_type(job.cotangent.type, [&](auto g) {
      sums_of<T, typename decltype(g)::type, Activation::None, true>(job);
    });
  });
}

void lane_gradients(const LaneVJPJob& job) {
  with_type(job.x.type, [&](auto x) {
    using T = typename decltype(x)::type;
    if (!job.by_row) {
      return with_result_activation<false>(job.activation, [&](auto flag) {
        input_gradient<T, decltype(flag)::value>(job);
      });
    }
    bool sums = job.weight_gradients[0].sum || job.bias_gradients[0].sum;
    with_type(job.cotangent.type, [&](auto g) {
      using G = typename decltype(g)::type;
      with_flag(sums, [&](auto flag) {
        constexpr bool kSums = decltype(flag)::value;
        if (job.uncentered) {
          row_gradients<T, G, false, kSums>(job);
        } else {
          row_gradients<T, G, true, kSums>(job);
        }
      });
    });
  });
}

} // namespace mlx_norms::cpu::MLX_NORMS_LEVEL
