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
  with_type(job.gate.type, [&](auto type) {
    using T = typename decltype(type)::type;
    with_gate_activation<T>(job, [&]<typename F>(F) {
      GateRow<T, F> gate{{job.gate, row}, gate_table<T, F>(job)};
      for_vectors(job.width, [=](int64_t i, auto extent) {
        store(to + i, gate(i, extent));
      });
    });
  });
  return {to};
}

// A row of the gate that is read in place, and its table if it is activated.
template <typename T, bool kActivated>
struct WholeGate {
  const T* data;
  const float* table;

  Floats operator()(int64_t i) const {
    if constexpr (kActivated) {
      return look_up(table, data + i);
    } else {
      return load(data + i);
    }
  }
};

// A row of x times one of its gate.
template <typename X, typename Gate>
struct GatedInput {
  Row<X> x;
  Gate gate;
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
template <typename X, typename Gate>
SummedRow<false> sum_gated(const NormJob& job, int64_t row, Gate gate) {
  GatedInput<X, Gate> input{{job.x, row}, gate, job.round_gated};
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

// For rows of x and the gate that are read in place.
template <typename T, bool kActivated>
void norm_whole_gated_rows(const NormJob& job, const float* table) {
  auto rounds = !job.late;
  auto gate = [&](int64_t row) {
    auto* data = static_cast<const T*>(job.gate.data);
    return WholeGate<T, kActivated>{data + row * job.gate.row_stride, table};
  };
  if (job.gate_first) {
    norm_rows<T, false, true>(job, 1, rounds, false, [&](int64_t row, float*) {
      return sum_gated<T>(job, row, gate(row));
    });
  } else {
    norm_rows<T, false, true>(
        job,
        1,
        rounds,
        false,
        [&](int64_t row, float*) { return sum_whole_row<false, T>(job, row); },
        [&](int64_t row) {
          return Gated<T, decltype(gate(row))>{gate(row), rounds};
        });
  }
}

bool are_whole_gated_rows(const NormJob& job) {
  return job.gate.data && job.x.type == job.normalized.type &&
      job.gate.type == job.normalized.type &&
      are_whole_rows(job.x, job.width) && are_whole_rows(job.gate, job.width);
}

// For any rows, in float32.
template <typename T>
void norm_other_gated_rows(const NormJob& job) {
  auto rounds = !job.late;
  for (int64_t row = 0; row < job.rows; ++row) {
    FloatGate gate{};
    if (job.gate.data) {
      gate = load_gate(job, row, job.scratch + padded(job.width));
    }
    SummedRow<false> summed;
    if (job.gate_first) {
      with_type(job.x.type, [&](auto type) {
        summed = sum_gated<typename decltype(type)::type>(job, row, gate);
      });
    } else {
      summed = sum_row<false>(job.x, row, job.width, job.scratch);
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
    } else if (job.gate.data) {
      store(Gated<T, FloatGate>{gate, rounds});
    } else {
      with_activation(job.activation, [&](auto activation) {
        store(Activated<T, decltype(activation)::value>{rounds});
      });
    }
  }
}

} // namespace

namespace mlx_norms::cpu::MLX_NORMS_LEVEL {

void norm_gated_rows(const NormJob& job) {
  with_type(job.normalized.type, [&](auto type) {
    using T = typename decltype(type)::type;
    if (are_whole_gated_rows(job)) {
      if (job.activation == Activation::None) {
        return norm_whole_gated_rows<T, false>(job, nullptr);
      }
      if constexpr (sizeof(T) == 2) {
        const float* table = nullptr;
        with_gate_activation<T>(
            job, [&]<typename F>(F) { table = gate_table<T, F>(job); });
        if (table) {
          return norm_whole_gated_rows<T, true>(job, table);
        }
      }
    }
    norm_other_gated_rows<T>(job);
  });
}

} // namespace mlx_norms::cpu::MLX_NORMS_LEVEL
