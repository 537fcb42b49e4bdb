// Copyright © 2026 mlx_norms contributors
//
// Rows with a gate or an activation.

#include <type_traits>

#include "csrc/norm/cpu/gate_row.h"
#include "csrc/norm/cpu/level.h"
#include "csrc/norm/cpu/norm_rows.h"
#include "csrc/norm/cpu/summed_row.h"

namespace {

// Calls f(F) with the activation of a gate of T; rounding early, each of its
// steps rounds to T.
template <typename T, typename F>
void with_gate_activation(const NormJob& job, F f) {
  with_activation(job.activation, [&](auto activation) {
    constexpr auto kActivation = decltype(activation)::value;
    if constexpr (std::is_same_v<T, float>) {
      f(ActivationOf<kActivation, float>{});
    } else if (job.late) {
      f(ActivationOf<kActivation, float>{});
    } else {
      f(ActivationOf<kActivation, T>{});
    }
  });
}

// A row of the gate, activated, in float32.
struct FloatGate {
  const float* data;

  Floats operator()(int64_t i) const {
    return load(data + i);
  }
};

FloatGate load_gate(const NormJob& job, int64_t row, float* to) {
  with_type(job.in[kGate].type, [&](auto type) {
    using T = typename decltype(type)::type;
    with_gate_activation<T>(job, [&]<typename F>(F) {
      GateRow<T, F> gate{{job.in[kGate], row}, gate_table<T, F>(job)};
      for_vectors(job.width, [=](int64_t i, auto extent) {
        store(to + i, gate(i, extent));
      });
    });
  });
  return {to};
}

// A row of the gate that is read in place: activated by F, of 16 bits by F's
// table.
template <typename T, typename F>
struct WholeGate {
  static constexpr bool kLooksUp = sizeof(T) == 2 && !F::kCheap;

  const T* data;
  const typename F::Result* table;

  Floats operator()(int64_t i) const {
    if constexpr (kLooksUp) {
      return look_up(table, data + i);
    } else {
      return F{}(load(data + i));
    }
  }
};

// A row of x times one of its gate.
template <typename X>
struct GatedInput {
  Row<X> x;
  FloatGate gate;
  bool rounds;

  template <typename Extent>
  Floats operator()(int64_t i, Extent extent) const {
    Floats v = x(i, extent) * gate(i);
    return rounds ? round_to<X>(v) : v;
  }
  Floats value(int64_t i, Whole extent) const {
    return (*this)(i, extent);
  }
};

// The first sums of a row of x times its gate.
template <typename X>
SummedRow<false> sum_gated(const NormJob& job, int64_t row, FloatGate gate) {
  GatedInput<X> input{{job.in[kX], row}, gate, job.round_gated};
  return sum_source<false>(input, job.width, job.scratch);
}

// The result y times a row of the gate.
template <typename T, typename Gate>
struct Gated {
  Gate gate;
  bool rounds;

  Floats operator()(Floats y, int64_t i) const {
    return (rounds ? round_to<T>(y) : y) * gate(i);
  }
};

// The result y, activated.
template <typename T, Activation kActivation>
struct Activated {
  bool rounds;

  Floats operator()(Floats y, int64_t) const {
    return rounds ? activated<kActivation, T>(round_to<T>(y))
                  : activated<kActivation, float>(y);
  }
};

// Sums a row of x times its gate, which is stored in `to`, and prefetches the
// next row: here, since this pass takes longest.
template <typename T, typename Gate, typename S>
SummedRow<false, WholeRow<S>>
sum_whole_gated_row(const NormJob& job, int64_t row, Gate gate, S* to) {
  auto* x =
      static_cast<const T*>(job.in[kX].data) + row * job.in[kX].row_stride;
  int64_t rows_ahead = row + 1 < job.rows;
  auto* coming_x = x + rows_ahead * job.in[kX].row_stride;
  auto* coming_gate = gate.data + rows_ahead * job.in[kGate].row_stride;
  auto* coming =
      static_cast<T*>(job.normalized.data) + (row + rows_ahead) * job.width;
  auto sums = pairwise_sums<1>(job.width, [=](int64_t i) {
    __builtin_prefetch(coming_x + i);
    __builtin_prefetch(coming_gate + i);
    __builtin_prefetch(coming + i, 1);
    Floats v = store_rounded(to + i, load(x + i) * gate(i));
    return Term<1>{v * v};
  });
  return {{to, job.width}, 0.0f, sums};
}

// For rows of x and the gate that are read in place.
template <typename T, typename F>
void norm_whole_gated_rows(
    const NormJob& job,
    const typename F::Result* table) {
  auto rounds = !job.late;
  auto gate = [&](int64_t row) {
    auto* data = static_cast<const T*>(job.in[kGate].data);
    return WholeGate<T, F>{data + row * job.in[kGate].row_stride, table};
  };
  if (!job.gate_first) {
    norm_rows<T, false, true>(
        job,
        1,
        rounds,
        false,
        [&](int64_t row, float*) { return sum_whole_row<false, T>(job, row); },
        [&](int64_t row) {
          return Gated<T, decltype(gate(row))>{gate(row), rounds};
        });
  } else if (job.round_gated) {
    // The products have the result's dtype and are stored in its place.
    norm_rows<T, false, false>(job, 1, rounds, false, [&](int64_t row, float*) {
      auto* to = static_cast<T*>(job.normalized.data) + row * job.width;
      return sum_whole_gated_row<T>(job, row, gate(row), to);
    });
  } else {
    norm_rows<T, false, false>(
        job, 1, rounds, false, [&](int64_t row, float* scratch) {
          return sum_whole_gated_row<T>(job, row, gate(row), scratch);
        });
  }
}

bool are_whole_gated_rows(const NormJob& job) {
  return job.in[kX].type == job.normalized.type &&
      job.in[kGate].type == job.normalized.type &&
      are_whole_rows(job.in[kX], job.width) &&
      are_whole_rows(job.in[kGate], job.width);
}

// For any rows of x and the gate, in float32.
template <typename T>
void norm_other_gated_rows(const NormJob& job) {
  auto rounds = !job.late;
  for (int64_t row = 0; row < job.rows; ++row) {
    auto gate = load_gate(job, row, job.scratch + padded(job.width));
    SummedRow<false> summed{};
    if (job.gate_first) {
      with_type(job.in[kX].type, [&](auto type) {
        summed = sum_gated<typename decltype(type)::type>(job, row, gate);
      });
    } else {
      summed = sum_row<false>(job.in[kX], row, job.width, job.scratch);
    }
    auto statistics = row_statistics(summed, job.root);
    auto store = [&](auto after) {
      store_row<T, false>(
          job,
          row,
          0,
          rounds,
          false,
          [v = summed.row.data, statistics](int64_t i) {
            return statistics.normalize(load(v + i));
          },
          after);
    };
    if (job.gate_first) {
      store(Unchanged{});
    } else {
      store(Gated<T, FloatGate>{gate, rounds});
    }
  }
}

// Also of a row shorter than a vector, which sum_row() would read beyond its
// end for the first element.
template <bool kCenter>
SummedRow<kCenter>
sum_any_row(const RowsIn& rows, int64_t row, int64_t width, float* scratch) {
  if (!kCenter || width >= kWidth) {
    return sum_row<kCenter>(rows, row, width, scratch);
  }
  auto v = load_row(rows, row, width, scratch);
  float shift = v.data[0];
  v.pad(shift);
  return {v, shift, first_sums<kCenter>(v, shift)};
}

// For any rows without a gate, in float32.
template <typename T, bool kCenter>
void norm_activated_rows(const NormJob& job) {
  auto rounds = !job.late;
  with_activation(job.activation, [&](auto activation) {
    norm_rows<T, kCenter, false>(
        job,
        1,
        rounds,
        job.bias.data != nullptr,
        [&](int64_t row, float* scratch) {
          return sum_any_row<kCenter>(job.in[kX], row, job.width, scratch);
        },
        [&](int64_t) {
          return Activated<T, decltype(activation)::value>{rounds};
        });
  });
}

} // namespace

namespace mlx_norms::cpu::MLX_NORMS_LEVEL {

void norm_gated_rows(const NormJob& job) {
  with_type(job.normalized.type, [&](auto type) {
    using T = typename decltype(type)::type;
    if (!job.in[kGate].data) {
      return job.center ? norm_activated_rows<T, true>(job)
                        : norm_activated_rows<T, false>(job);
    }
    if (!are_whole_gated_rows(job)) {
      return norm_other_gated_rows<T>(job);
    }
    with_gate_activation<T>(job, [&]<typename F>(F) {
      auto* table = gate_table<T, F>(job);
      if constexpr (F::kSmall && sizeof(T) == 2) {
        norm_other_gated_rows<T>(job);
      } else if (WholeGate<T, F>::kLooksUp && !table) {
        norm_other_gated_rows<T>(job);
      } else {
        norm_whole_gated_rows<T, F>(job, table);
      }
    });
  });
}

} // namespace mlx_norms::cpu::MLX_NORMS_LEVEL
