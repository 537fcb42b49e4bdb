// Copyright © 2026 mlx_norms contributors

#include <type_traits>

#include "csrc/norm/cpu/gate_row.h"
#include "csrc/norm/cpu/gradients.h"
#include "csrc/norm/cpu/level.h"

namespace {

// A row of the gate: its activation and slopes. What takes long is kept in two
// rows for the second pass: sigmoids, or values and slopes.
template <typename T, Activation kActivation>
struct SlopedGate {
  static constexpr bool kSigmoid = kNeedsSigmoid<kActivation>;
  static constexpr bool kKeeps = !is_cheap(kActivation);
  static constexpr bool kLooksUp = kKeeps && sizeof(T) == 2;
  using Looked = std::conditional_t<
      kSigmoid,
      ActivationOf<Activation::Sigmoid, float>,
      ValueAndSlopeOf<kActivation>>;

  const T* gate;
  float* kept;
  float* slopes;
  const typename Looked::Result* table = nullptr;

  SlopedGate(const T* gate, float* kept, float* slopes)
      : gate(gate),
        kept(kept),
        slopes(slopes) {
    if constexpr (kLooksUp) {
      table = table_of<T, Looked>();
    }
  }

  ValueAndSlope first(int64_t i) const {
    Floats v = load(gate + i);
    if constexpr (!kKeeps) {
      return value_and_slope<kActivation>(v);
    } else if constexpr (kSigmoid) {
      Floats s = kLooksUp ? look_up(table, gate + i) : sigmoid<float>(v);
      store(kept + i, s);
      return value_and_slope<kActivation>(v, s);
    } else {
      ValueAndSlope of;
      if constexpr (kLooksUp) {
        of = look_up(table, gate + i);
      } else {
        of = value_and_slope<kActivation>(v);
      }
      store(kept + i, of.value);
      store(slopes + i, of.slope);
      return of;
    }
  }

  ValueAndSlope again(int64_t i) const {
    Floats v = load(gate + i);
    if constexpr (!kKeeps) {
      return value_and_slope<kActivation>(v);
    } else if constexpr (kSigmoid) {
      return value_and_slope<kActivation>(v, load(kept + i));
    } else {
      return {load(kept + i), load(slopes + i)};
    }
  }
};

// A row times its activated gate, computed again.
template <typename T, typename Gate>
struct ProductRow {
  using Element = T;

  const T* s;
  Gate gate;
  int64_t width;

  template <int K, typename F>
  Sums<K> sums(F term) const {
    return pairwise_sums<K>(padded(width), [row = *this, term](int64_t i) {
      return term(load(row.s + i) * row.gate.again(i).value, i);
    });
  }
};

// A row of the inputs and outputs, padded. Outputs that are null are not
// wanted; they may be the inputs.
template <typename T>
struct GatedRow {
  const T* s;
  const T* cotangent;
  const T* gate;
  T* input;
  T* gate_gradient;
  int64_t ahead; // elements to the next row, which is prefetched; 0: none
};

// The gate multiplies either the norm's input (kFirst) or its cotangent.
template <typename T, Activation kActivation, bool kFirst>
void vjp_of_gated_row(
    const NormVJPJob& job,
    int64_t row,
    const GatedRow<T>& of) {
  auto pitch = padded(job.width);
  const float* weight = row_of(job.weight, job, row);
  SlopedGate<T, kActivation> gate(of.gate, job.scratch, job.scratch + pitch);

  auto sums = pairwise_sums<2>(pitch, [=](int64_t i) {
    Floats by = gate.first(i).value;
    Floats v = load(of.s + i);
    Floats g = load(of.cotangent + i);
    (kFirst ? v : g) *= by;
    return Term<2>{v * v, g * load(weight + i) * v};
  });
  VJPRow<false, T, T> in{of.s, of.cotangent, nullptr, {}, 0, 0};
  ProductRow<T, decltype(gate)> product{of.s, gate, job.width};
  finish_vjp_row<false>(in, product, 0.0f, sums, weight, job.root);

  bool wants_weight = job.weight_gradient.sum;
  float* partial = job.weight_gradient.partial +
      (wants_weight ? weight_offset(job, row) : 0);
  for (int64_t i = 0; i < pitch; i += kWidth) {
    if (auto ahead = of.ahead) {
      __builtin_prefetch(of.s + ahead + i);
      __builtin_prefetch(of.cotangent + ahead + i);
      __builtin_prefetch(of.gate + ahead + i);
      if (of.input) {
        __builtin_prefetch(of.input + ahead + i, 1);
      }
      if (of.gate_gradient) {
        __builtin_prefetch(of.gate_gradient + ahead + i, 1);
      }
    }
    auto by = gate.again(i);
    Floats v = load(of.s + i);
    Floats g = load(of.cotangent + i);
    Floats w = load(weight + i);
    Floats of_gate = (kFirst ? v : g) * by.slope;
    (kFirst ? v : g) *= by.value;
    Floats n = in.statistics.normalize(v);
    if (wants_weight) {
      store(partial + i, load(partial + i) + g * n);
    }
    Floats dx = (g * w - n * in.mean_wgn) * in.statistics.rstd;
    if (of.gate_gradient) {
      store(of.gate_gradient + i, (kFirst ? dx : n * w) * of_gate);
    }
    if (of.input) {
      store(of.input + i, kFirst ? dx * by.value : dx);
    }
  }
  add_partials(job, row, wants_weight, false);
}

// Calls row_of(row, vjp) for each row, where vjp(of) takes its GatedRow.
template <typename T, typename F>
void for_each_gated_row(const NormVJPJob& job, F row_of) {
  with_activation(job.activation, [&](auto activation) {
    constexpr auto kActivation = decltype(activation)::value;
    if constexpr (sizeof(T) == 4 || kActivation != Activation::Relu2) {
      with_flag(job.gate_first, [&](auto first) {
        for (int64_t row = 0; row < job.rows; ++row) {
          row_of(row, [&](const GatedRow<T>& of) {
            vjp_of_gated_row<T, kActivation, first.value>(job, row, of);
          });
        }
      });
    }
  });
}

bool are_whole_gated_rows(const NormVJPJob& job) {
  auto type = job.in[kX].type;
  auto whole = [&](const RowsIn& rows) {
    return rows.type == type && are_whole_rows(rows, job.width);
  };
  auto wanted = [&](const RowsOut& rows) {
    return !rows.data || rows.type == type;
  };
  bool fast = type == Float::f32 || job.activation == Activation::None ||
      is_worth_a_table(job);
  return fast && whole(job.in[kX]) && whole(job.in[kCotangent]) &&
      whole(job.in[kGate]) && wanted(job.input) && wanted(job.gate_gradient);
}

// For rows that are read in place.
template <typename T>
void vjp_of_whole_gated_rows(const NormVJPJob& job) {
  for_each_gated_row<T>(job, [&](int64_t row, auto vjp) {
    auto in = [&](const RowsIn& rows) {
      return static_cast<const T*>(rows.data) + row * rows.row_stride;
    };
    auto out = [&](const RowsOut& rows) {
      auto* data = static_cast<T*>(rows.data);
      return data ? data + row * job.width : nullptr;
    };
    vjp(
        {in(job.in[kX]),
         in(job.in[kCotangent]),
         in(job.in[kGate]),
         out(job.input),
         out(job.gate_gradient),
         row + 1 < job.rows ? job.width : 0});
  });
}

RowsOut row_of(const RowsOut& rows, int64_t row, int64_t width) {
  int size = rows.type == Float::f32 ? 4 : 2;
  return {static_cast<char*>(rows.data) + row * width * size, rows.type};
}

// For any rows, in float32.
void vjp_of_other_gated_rows(const NormVJPJob& job) {
  auto width = job.width;
  auto pitch = padded(width);
  // The first two are vjp_of_gated_row()'s.
  float* s_row = job.scratch + 2 * pitch;
  float* g_row = s_row + pitch;
  float* gate_row = g_row + pitch;
  for_each_gated_row<float>(job, [&](int64_t row, auto vjp) {
    auto* input = job.input.data ? s_row : nullptr;
    auto* gate_gradient = job.gate_gradient.data ? gate_row : nullptr;
    vjp(
        {load_row(job.in[kX], row, width, s_row).data,
         load_row(job.in[kCotangent], row, width, g_row).data,
         load_row(job.in[kGate], row, width, gate_row).data,
         input,
         gate_gradient,
         0});
    if (input) {
      store_float_row(input, width, row_of(job.input, row, width));
    }
    if (gate_gradient) {
      store_float_row(
          gate_gradient, width, row_of(job.gate_gradient, row, width));
    }
  });
}

} // namespace

namespace mlx_norms::cpu::MLX_NORMS_LEVEL {

// The gradients of rows with a gate: those of the norm of x times the activated
// gate, or those for the cotangent times it.
void vjp_of_gated_rows(const NormVJPJob& job) {
  if (!are_whole_gated_rows(job)) {
    return vjp_of_other_gated_rows(job);
  }
  with_whole_type(job.in[kX].type, [&](auto type) {
    vjp_of_whole_gated_rows<typename decltype(type)::type>(job);
  });
}

} // namespace mlx_norms::cpu::MLX_NORMS_LEVEL
