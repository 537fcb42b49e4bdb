// Copyright © 2026 mlx_norms contributors
//
// Rows with a gate or an activation, in float32.

#include <type_traits>

#include "csrc/cpu/activations.h"
#include "csrc/norm/cpu/level.h"
#include "csrc/norm/cpu/store_row.h"
#include "csrc/norm/cpu/summed_row.h"

namespace {

// Stores a row of the gate, activated, in float32; rounding early, each step
// rounds to its dtype.
void load_gate(const NormJob& job, int64_t row, float* to) {
  with_type(job.gate.type, [&](auto type) {
    using T = typename decltype(type)::type;
    Row<T> gate(job.gate, row);
    with_activation(job.activation, [&](auto activation) {
      constexpr auto kActivation = decltype(activation)::value;
      auto load_rounded = [&](auto rounds) {
        using R = std::conditional_t<rounds.value, T, float>;
        for_vectors(job.width, [=](int64_t i, auto extent) {
          store(to + i, activated<kActivation, R>(gate(i, extent)));
        });
      };
      if constexpr (std::is_same_v<T, float>) {
        load_rounded(Flag<false>{});
      } else {
        with_flag(!job.late, load_rounded);
      }
    });
  });
}

// Multiplies a row of x by one of its gate, which load_gate() stored.
FloatRow gate_row(const NormJob& job, int64_t row, const float* gate) {
  auto* to = job.scratch;
  with_type(job.x.type, [&](auto type) {
    using X = typename decltype(type)::type;
    Row<X> x(job.x, row);
    bool rounds = job.round_gated;
    for_vectors(job.width, [=](int64_t i, auto extent) {
      Floats v = x(i, extent) * load(gate + i);
      store(to + i, rounds ? round_to<X>(v) : v);
    });
  });
  return padded_row(to, job.width);
}

// The result y times a row of the gate.
template <typename T>
struct Gated {
  const float* gate;
  bool rounds;

  Floats operator()(Floats y, int64_t i) const {
    return (rounds ? round_to<T>(y) : y) * load(gate + i);
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

} // namespace

namespace mlx_norms::cpu::MLX_NORMS_LEVEL {

void norm_gated_rows(const NormJob& job) {
  auto* gate = job.scratch + padded(job.width);
  auto rounds = !job.late;
  with_type(job.normalized.type, [&](auto type) {
    using T = typename decltype(type)::type;
    for (int64_t row = 0; row < job.rows; ++row) {
      if (job.gate.data) {
        load_gate(job, row, gate);
      }
      SummedRow<false> summed;
      if (job.gate_first) {
        auto v = gate_row(job, row, gate);
        summed = {v, 0.0f, first_sums<false>(v, 0.0f)};
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
        store(Gated<T>{gate, rounds});
      } else {
        with_activation(job.activation, [&](auto activation) {
          store(Activated<T, decltype(activation)::value>{rounds});
        });
      }
    }
  });
}

} // namespace mlx_norms::cpu::MLX_NORMS_LEVEL
