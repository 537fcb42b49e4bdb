// Copyright (c) 2026 mlx_norms contributors
//
// RMSNorm of heads and a rotary embedding, of up to three tensors in one
// launch. The threads of a row take one after another some heads of a token,
// whose angles they compute once. No barrier: one SIMD-group has a row.

#include "kernels/common/parameters.h"
#include "kernels/common/row_instances.h"
#include "kernels/norm/steps.h"
#include "kernels/rope/angles.h"

constant bool has_x2 [[function_constant]];
constant bool has_x3 [[function_constant]]; // neither weighted nor rotated
constant bool has_weight2 [[function_constant]];
constant bool has_freqs [[function_constant]];
constant bool normalized [[function_constant]]; // else x is only rotated
constant bool rope_first [[function_constant]];
constant bool head_major [[function_constant]]; // of the results
constant bool traditional [[function_constant]];
constant bool has_multiplier [[function_constant]]; // of x's norm
constant int partner [[function_constant]];         // a Partner

constant int x_flags [[function_constant]];
constant int x2_flags [[function_constant]];
constant int x3_flags [[function_constant]];
constant int weight2_flags [[function_constant]];
constant int y_flags [[function_constant]];
constant int y2_flags [[function_constant]];
constant int y3_flags [[function_constant]];

// Where the elements are that a vector's are rotated with.
enum Partner {
  kInVector = 0,  // beside each other
  kInHalf = 1,    // in the same thread's vector V / 2 further or before
  kInRow = 2,     // in one vector of the row, which is read again
  kScattered = 3, // anywhere
  kInLane = 4     // in a vector of the thread half of the row's threads away
};

// A row's elements as they are rotated: cosines, and sines with their signs.
template <int N, int V>
struct Angles {
  float cosines[V * N];
  float sines[V * N];
};

// The index of an element's pair, whether it is the pair's first, and the other
// one.
inline int pair_of(int e, int half_dims) {
  return traditional ? e / 2 : e < half_dims ? e : e - half_dims;
}
inline bool is_first(int e, int half_dims) {
  return traditional ? (e & 1) == 0 : e < half_dims;
}
inline int partner_of(int e, int half_dims) {
  return traditional ? e ^ 1 : e < half_dims ? e + half_dims : e - half_dims;
}

template <int N>
inline int element_of(Span<N> of, int j) {
  return of.begin + j * of.step;
}

// base^(-i / half_dims), as MLX's kernels compute it: the quotient is the
// nearest one, by a step that all of a thread's quotients take at once.
inline float inverse_power(float log2_base, int i, int half_dims) {
  float of = float(half_dims);
  float inverse = 1.0f / of;
  float near = float(i) * inverse;
  float quotient = fma(fma(-near, of, float(i)), inverse, near);
  return precise::exp2(-quotient * log2_base);
}

// What rotates a token's elements.
struct Rotation {
  int dims; // of a row
  int half_dims;
  float position;
  float log2_base;
  device const float* freqs; // if there are any

  // The sines and cosines of the vector `of`, in which each SAME elements that
  // adjoin have one angle.
  template <int N, int SAME>
  void angles(Span<N> of, thread float* sines, thread float* cosines)
      const thread {
    float theta[N];
    for (int j = 0; j < N; j += SAME) {
      int e = element_of<N>(of, j);
      bool own = partner != kInLane || is_first(e, half_dims);
      theta[j] = 0.0f;
      if (own && of.has(j) && e < dims) {
        int pair = pair_of(e, half_dims);
        theta[j] = position *
            (has_freqs ? 1.0f / freqs[pair]
                       : inverse_power(log2_base, pair, half_dims));
      }
    }
    sines_and_cosines<N, SAME>(theta, sines, cosines);
  }
};

// What is done to the elements of a row.
struct Normalizing {
  Statistics stats;
  float weight_offset;
  bool weighted;
  float multiplier;
  int type; // that each step is rounded to
};

// The steps of the elements v of a row, whose weight is w.
template <int N>
inline void apply(Normalizing by, thread float* w, thread float* v) {
  if (!normalized) {
    return;
  }
  normalize<N>(by.stats, by.type, v);
  if (has_weight) {
    add_offset<N>(by.weight_offset, w);
    for (int j = 0; j < N; ++j) {
      v[j] = by.weighted ? v[j] * w[j] : v[j];
    }
    round_step<N>(round_early, by.type, v);
  }
  if (has_multiplier) {
    for (int j = 0; j < N; ++j) {
      v[j] = v[j] * by.multiplier;
    }
    round_step<N>(round_early, by.type, v);
  }
}

// Vector k of a row that is held, which is `of`, normalized.
template <int N, int V>
inline void normalized_vector(
    Normalizing by,
    RowIn row,
    RowIn weight_row,
    int k,
    Span<N> of,
    thread HeldRow<N, V>& held,
    thread float* v) {
  float w[N];
  clear<N>(w);
  if (has_weight && by.weighted) {
    read<N>(weight_row, of, w);
  }
  held.get_vector(row, k, of, v);
  apply<N>(by, w, v);
}

// Those elements of a row with which the vector `of` is rotated; the others are
// zeros.
template <int N>
inline void read_partners(RowIn row, Span<N> of, int dims, thread float* v) {
  int half_dims = dims / 2;
  clear<N>(v);
  if (partner != kScattered) {
    if (of.is_full() && of.begin < dims) {
      read<N>(row, Span<N>{partner_of(of.begin, half_dims), N, 1}, v);
    }
    return;
  }
  for (int j = 0; j < N; ++j) {
    int e = element_of<N>(of, j);
    if (of.has(j) && e < dims) {
      long at = long(partner_of(e, half_dims)) * row.step;
      v[j] = load(row.data + at * size_of(row.type), row.type);
    }
  }
}

// Elements that adjoin, exchanged.
template <int N>
inline void swap_pairs(thread const float* v, thread float* partners) {
  for (int j = 0; j < N; ++j) {
    partners[j] = v[j ^ 1];
  }
}

// Reads, of the V vectors of the thread half of the row's threads away, the one
// that vector k is rotated with. V is odd: half a row is half of the threads'
// vectors and some whole ones of each.
template <int N, int V>
inline void partners_in_lane(
    thread const RowThreads& threads,
    int k,
    thread const float* v,
    thread float* partners) {
  int half_lanes = threads.lanes / 2;
  bool lower = threads.lane < half_lanes;
  for (int j = 0; j < N; ++j) {
    // Each sends what the other one needs.
    float of_lower = v[(k + (V + 1) / 2) % V * N + j];
    float of_upper = v[(k + V / 2) % V * N + j];
    partners[j] = simd_shuffle_xor(lower ? of_lower : of_upper, half_lanes);
  }
}

// Rotates the elements v, which are `of`, with their partners. Sums and
// products are those that MLX's kernel has on CUDA.
template <int N>
inline void rotate(
    thread const float* cosines,
    thread const float* sines,
    thread const float* partners,
    Span<N> of,
    int dims,
    thread float* v) {
  for (int j = 0; j < N; ++j) {
    int e = element_of<N>(of, j);
    float turned = is_first(e, dims / 2)
        ? fma(v[j], cosines[j], partners[j] * sines[j])
        : fma(partners[j], sines[j], v[j] * cosines[j]);
    v[j] = e < dims ? turned : v[j];
  }
}

template <int N, int V, int THREADS> // the most threads per threadgroup
[[kernel, max_total_threads_per_threadgroup(THREADS)]] void norm_rope(
    device const uchar* x [[buffer]],
    device const uchar* x2 [[buffer, function_constant(has_x2)]],
    device const uchar* x3 [[buffer, function_constant(has_x3)]],
    device const uchar* weight [[buffer, function_constant(has_weight)]],
    device const uchar* weight2 [[buffer, function_constant(has_weight2)]],
    device const int* offsets [[buffer]],
    device const float* freqs [[buffer, function_constant(has_freqs)]],
    device uchar* y [[buffer]],
    device uchar* y2 [[buffer, function_constant(has_x2)]],
    device uchar* y3 [[buffer, function_constant(has_x3)]],
    constant const int* layouts [[buffer]],
    constant const int* counts [[buffer]], // the six below
    constant const int& sequences_per_offset [[buffer]],
    constant const int& length [[buffer]],
    constant const int& dims [[buffer]],
    constant const float& eps [[buffer]],
    constant const float& weight_offset [[buffer]],
    constant const float& log2_base [[buffer]],
    constant const float& position_scale [[buffer]],
    constant const float& multiplier [[buffer]],
    uint group [[threadgroup_position_in_grid]],
    uint simds_per_group [[simdgroups_per_threadgroup]],
    uint simd [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float4 partial[2 * kMaxSimds];
  RowThreads threads = make_row_threads(simd, lane, partial);
  int tokens = counts[0];    // of all sequences
  int positions = counts[1]; // tokens of a sequence
  int heads = counts[2], heads2 = counts[3], heads3 = counts[4];
  int heads_at_once = counts[5];
  // Some heads of one token of one tensor.
  uint item =
      row_threads_index(group, simds_per_group, simd) * rows_per_simd() +
      row_in_simd(lane);
  uint most = uint(heads_at_once);
  uint shares1 = (uint(heads) + most - 1) / most;
  uint shares2 = (uint(heads2) + most - 1) / most;
  uint shares3 = (uint(heads3) + most - 1) / most;
  uint end1 = uint(tokens) * shares1;
  uint end2 = end1 + uint(tokens) * shares2;
  if (item >= end2 + uint(tokens) * shares3) {
    return; // all lanes of a row
  }
  bool is_first_tensor = item < end1;
  bool rotated = item < end2;
  uint begin = is_first_tensor ? 0 : rotated ? end1 : end2;
  uint shares = is_first_tensor ? shares1 : rotated ? shares2 : shares3;
  uint own_heads = uint(is_first_tensor ? heads : rotated ? heads2 : heads3);
  uint token = (item - begin) / shares;
  uint first_head = (item - begin - token * shares) * most;
  uint sequence = token / uint(positions);
  uint index = token - sequence * uint(positions);
  float multiplier_of_x = is_first_tensor ? multiplier : 1.0f;

  int offset = offsets[sequence / uint(sequences_per_offset)];
  float position = position_scale * float(int(index) + offset);
  int half_dims = dims / 2;
  Angles<N, V> angles;
  Rotation rotation;
  rotation.dims = rotated ? dims : 0;
  rotation.half_dims = half_dims;
  rotation.position = position;
  rotation.log2_base = log2_base;
  if (has_freqs) {
    rotation.freqs = freqs;
  }
  for (int k = 0; k < V; ++k) {
    if (partner == kInHalf && k >= V / 2) {
      // The other half's angles are those of the first.
      for (int j = 0; j < N; ++j) {
        int at = k * N + j;
        angles.cosines[at] = angles.cosines[at - V / 2 * N];
        angles.sines[at] = -angles.sines[at - V / 2 * N];
      }
      continue;
    }
    Span<N> of = span_of<N>(threads, 0, k, length);
    float sines[N], cosines[N];
    clear<N>(sines);
    clear<N>(cosines);
    if (partner != kInLane || k <= V / 2) { // beyond, all are another thread's
      if (partner == kInVector) {
        rotation.angles<N, 2>(of, sines, cosines);
      } else {
        rotation.angles<N, 1>(of, sines, cosines);
      }
    }
    for (int j = 0; j < N; ++j) {
      int at = k * N + j;
      bool first = is_first(element_of<N>(of, j), half_dims);
      angles.cosines[at] = cosines[j];
      angles.sines[at] = first ? -sines[j] : sines[j];
    }
  }

  if (partner == kInLane) {
    float cosines[V * N], sines[V * N];
    for (int k = 0; k < V; ++k) {
      partners_in_lane<N, V>(threads, k, angles.cosines, cosines + k * N);
      partners_in_lane<N, V>(threads, k, angles.sines, sines + k * N);
    }
    for (int k = 0; k < V; ++k) {
      Span<N> of = span_of<N>(threads, 0, k, length);
      for (int j = 0; j < N; ++j) {
        int at = k * N + j;
        bool own = is_first(element_of<N>(of, j), half_dims);
        angles.cosines[at] = own ? angles.cosines[at] : cosines[at];
        angles.sines[at] = own ? angles.sines[at] : -sines[at];
      }
    }
  }

  for (int i = 0; i < heads_at_once; ++i) {
    // All threads go on, since others of the SIMD-group may need them.
    bool has_head = first_head + uint(i) < own_heads;
    uint head = has_head ? first_head + uint(i) : own_heads - 1;
    uint row = token * own_heads + head;
    uint row_of_y = head_major
        ? (sequence * own_heads + head) * uint(positions) + index
        : row;
    RowIn in, w;
    RowOut out;
    if (is_first_tensor) {
      assign(in, row_in(x, x_flags, layouts, row, length));
      assign(out, row_out(y, y_flags, row_of_y, length));
    }
    if (has_weight) {
      assign(w, row_in(weight, weight_flags, layouts, row, length));
    }
    if (has_x2 && !is_first_tensor && rotated) {
      assign(in, row_in(x2, x2_flags, layouts, row, length));
      assign(out, row_out(y2, y2_flags, row_of_y, length));
      if (has_weight2) {
        assign(w, row_in(weight2, weight2_flags, layouts, row, length));
      }
    }
    if (has_x3 && !rotated) {
      assign(in, row_in(x3, x3_flags, layouts, row, length));
      assign(out, row_out(y3, y3_flags, row_of_y, length));
    }

    HeldRow<N, V> held;
    float2 squares = float2(0.0f);
    RowIn summed = in;
    if (rope_first && !round_early) {
      summed.type = kFloat32; // as it is held
    }
    for (int k = 0; k < V; ++k) {
      Span<N> of = span_of<N>(threads, 0, k, length);
      float v[N];
      if (rope_first) {
        read<N>(in, of, v);
        if (rotated) {
          float partners[N];
          if (partner == kInVector) {
            swap_pairs<N>(v, partners);
          } else {
            read_partners<N>(in, of, dims, partners);
          }
          rotate<N>(
              angles.cosines + k * N,
              angles.sines + k * N,
              partners,
              of,
              dims,
              v);
          round_step<N>(round_early, in.type, v);
        }
        held.put_vector(k, summed.type, v);
      } else {
        held.read_vector(in, k, of, v);
      }
      for (int j = 0; j < N; ++j) {
        squares = add_first(squares, v[j]);
      }
    }
    Statistics stats = Statistics{0.0f, 0.0f, 1.0f};
    if (normalized) {
      stats = statistics<N, V>(squares, summed, threads, length, eps, held);
    }

    Normalizing by =
        Normalizing{stats, weight_offset, rotated, multiplier_of_x, out.type};
    bool rotates = rotated && !rope_first;
    float all[V * N]; // normalized, where threads exchange them
    if (partner == kInLane) {
      for (int k = 0; k < V; ++k) {
        Span<N> of = span_of<N>(threads, 0, k, length);
        normalized_vector<N, V>(by, summed, w, k, of, held, all + k * N);
      }
    }
    for (int k = 0; k < V; ++k) {
      Span<N> of = span_of<N>(threads, 0, k, length);
      thread const float* cosines = angles.cosines + k * N;
      thread const float* sines = angles.sines + k * N;
      float v[N], partners[N];
      if (partner == kInHalf) {
        if (k < V / 2) {
          int other = k + V / 2;
          Span<N> of_other = span_of<N>(threads, 0, other, length);
          float u[N];
          normalized_vector<N, V>(by, summed, w, k, of, held, v);
          normalized_vector<N, V>(by, summed, w, other, of_other, held, u);
          if (rotates) {
            for (int j = 0; j < N; ++j) {
              partners[j] = v[j];
            }
            rotate<N>(cosines, sines, u, of, dims, v);
            rotate<N>(
                angles.cosines + other * N,
                angles.sines + other * N,
                partners,
                of_other,
                dims,
                u);
          }
          if (has_head) {
            write<N>(out, of, v);
            write<N>(out, of_other, u);
          }
        }
      } else if (partner == kInLane) {
        partners_in_lane<N, V>(threads, k, all, partners);
        for (int j = 0; j < N; ++j) {
          v[j] = all[k * N + j];
        }
        if (rotates) {
          rotate<N>(cosines, sines, partners, of, dims, v);
        }
        if (has_head) {
          write<N>(out, of, v);
        }
      } else {
        normalized_vector<N, V>(by, summed, w, k, of, held, v);
        if (rotates) {
          if (partner == kInVector) {
            swap_pairs<N>(v, partners);
          } else {
            float of_w[N];
            clear<N>(of_w);
            read_partners<N>(in, of, dims, partners);
            if (has_weight) {
              read_partners<N>(w, of, dims, of_w);
            }
            apply<N>(by, of_w, partners);
          }
          rotate<N>(cosines, sines, partners, of, dims, v);
        }
        if (has_head) {
          write<N>(out, of, v);
        }
      }
    }
  }
}

#define INSTANTIATE_NORM_ROPE(N, V, THREADS)                \
  template [[host_name("norm_rope_" #N "_" #V)]] [[kernel]] \
  decltype(norm_rope<N, V, THREADS>) norm_rope<N, V, THREADS>;

#ifdef __CUDACC__
FOR_HEADS_ON_CUDA(INSTANTIATE_NORM_ROPE)
#else
FOR_HEADS_ON_METAL(INSTANTIATE_NORM_ROPE)
#endif
