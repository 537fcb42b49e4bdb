// Copyright (c) 2026 mlx_norms contributors
//
// RMSNorms of two to four arrays in one launch, whose threadgroups have one's
// rows each. A row is summed as by norm.metal.

#include "kernels/common/row_instances.h"
#include "kernels/norm/fetched_row.h"
#include "kernels/norm/steps.h"

constant bool has_x3 [[function_constant]];
constant bool has_x4 [[function_constant]];
constant bool has_weight2 [[function_constant]];
constant bool has_weight3 [[function_constant]];
constant bool has_weight4 [[function_constant]];
constant bool has_multipliers [[function_constant]];
// Rows have lengths and threads of their own, which all pass some row's end;
// a thread's vectors are as many as the row with the most needs.
constant bool mixed_lengths [[function_constant]];

constant int x_flags [[function_constant]];
constant int x2_flags [[function_constant]];
constant int x3_flags [[function_constant]];
constant int x4_flags [[function_constant]];
constant int weight2_flags [[function_constant]];
constant int weight3_flags [[function_constant]];
constant int weight4_flags [[function_constant]];
constant int y_flags [[function_constant]];
constant int y2_flags [[function_constant]];
constant int y3_flags [[function_constant]];
constant int y4_flags [[function_constant]];

// What is passed of an array: its first threadgroup, its rows, their length,
// the threads and the full_count of a row, and the multiplier's bits.
enum NormedArray {
  kFirstGroup,
  kRows,
  kLength,
  kThreadsPerRow,
  kFullCount,
  kMultiplier
};

// The other array's, if the threadgroup has some of its rows.
inline bool is_of(uint group, constant const int* array, thread int* of) {
  bool its = group >= uint(array[kFirstGroup]);
  for (int i = 0; i < 6; ++i) {
    of[i] = its ? array[i] : of[i];
  }
  return its;
}

template <int N, int V, int THREADS> // the most threads per threadgroup
[[kernel, max_total_threads_per_threadgroup(THREADS)]] void rms_norms(
    device const uchar* x [[buffer]],
    device const uchar* x2 [[buffer]],
    device const uchar* x3 [[buffer, function_constant(has_x3)]],
    device const uchar* x4 [[buffer, function_constant(has_x4)]],
    device const uchar* weight [[buffer, function_constant(has_weight)]],
    device const uchar* weight2 [[buffer, function_constant(has_weight2)]],
    device const uchar* weight3 [[buffer, function_constant(has_weight3)]],
    device const uchar* weight4 [[buffer, function_constant(has_weight4)]],
    device uchar* y [[buffer]],
    device uchar* y2 [[buffer]],
    device uchar* y3 [[buffer, function_constant(has_x3)]],
    device uchar* y4 [[buffer, function_constant(has_x4)]],
    constant const int* layouts [[buffer]],
    constant const int* array1 [[buffer]],
    constant const int* array2 [[buffer]],
    constant const int* array3 [[buffer, function_constant(has_x3)]],
    constant const int* array4 [[buffer, function_constant(has_x4)]],
    constant const float& eps [[buffer]],
    constant const float& weight_offset [[buffer]],
    uint group [[threadgroup_position_in_grid]],
    uint simds_per_group [[simdgroups_per_threadgroup]],
    uint simd [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float4 partial[2 * kMaxSimds];
  int of[6];
  for (int i = 0; i < 6; ++i) {
    of[i] = array1[i];
  }
  bool second = is_of(group, array2, of);
  bool third = false;
  bool fourth = false;
  if (has_x3) {
    third = is_of(group, array3, of);
  }
  if (has_x4) {
    fourth = is_of(group, array4, of);
  }
  int length = of[kLength];
  RowThreads threads = make_row_threads(simd, lane, partial);
  if (mixed_lengths) {
    threads.lanes = min(of[kThreadsPerRow], kSimdSize);
    threads.simds = max(of[kThreadsPerRow] / kSimdSize, 1);
    threads.full_count = of[kFullCount];
    threads.simd = threads.simds == 1 ? 0 : simd;
    threads.lane = lane % threads.lanes;
  }
  uint row = group - uint(of[kFirstGroup]);
  if (threads.simds == 1) {
    row = (row * simds_per_group + simd) * (kSimdSize / threads.lanes) +
        lane / threads.lanes;
  }
  if (row >= uint(of[kRows])) {
    return; // all lanes of a row, in a threadgroup without barriers
  }

  RowIn in, w;
  RowOut out;
  bool weighted;
  if (has_x4 && fourth) {
    assign(in, row_in(x4, x4_flags, layouts, row, length));
    assign(out, row_out(y4, y4_flags, row, length));
    if (has_weight4) {
      assign(w, row_in(weight4, weight4_flags, layouts, row, length));
    }
    weighted = has_weight4;
  } else if (has_x3 && third) {
    assign(in, row_in(x3, x3_flags, layouts, row, length));
    assign(out, row_out(y3, y3_flags, row, length));
    if (has_weight3) {
      assign(w, row_in(weight3, weight3_flags, layouts, row, length));
    }
    weighted = has_weight3;
  } else if (second) {
    assign(in, row_in(x2, x2_flags, layouts, row, length));
    assign(out, row_out(y2, y2_flags, row, length));
    if (has_weight2) {
      assign(w, row_in(weight2, weight2_flags, layouts, row, length));
    }
    weighted = has_weight2;
  } else {
    assign(in, row_in(x, x_flags, layouts, row, length));
    assign(out, row_out(y, y_flags, row, length));
    if (has_weight) {
      assign(w, row_in(weight, weight_flags, layouts, row, length));
    }
    weighted = has_weight;
  }
  if (mixed_lengths && threads.simd >= threads.simds) {
    length = 0; // idle, but for barriers
    threads.full_count = 0;
  }

  FetchedRow<N, V> x_row, w_row;
  x_row.fetch_all(in, threads, length);
  if (weighted) {
    w_row.fetch_all(w, threads, length);
  }
  HeldRow<N, V> held;
  Statistics stats = read_row<N, V>(x_row, threads, length, eps, held);

  for (int chunk = 0; next_chunk(chunk, length);
       chunk += chunk_length<N, V>()) {
    for (int k = 0; k < V; ++k) {
      Span<N> at = span_of<N>(threads, chunk, k, length);
      float v[N];
      held.get_vector(in, k, at, v);
      normalize<N>(stats, out.type, v);
      if (weighted) {
        w_row.weigh(k, at, weight_offset, v);
      }
      if (has_multipliers) {
        round_step<N>(round_early, out.type, v);
        for (int j = 0; j < N; ++j) {
          v[j] = v[j] * as_type<float>(of[kMultiplier]);
        }
      }
      write<N>(out, at, v);
    }
  }
}

#define INSTANTIATE_RMS_NORMS(N, V, THREADS)                             \
  template [[host_name("rms_norms_" #N "_" #V "_" #THREADS)]] [[kernel]] \
  decltype(rms_norms<N, V, THREADS>) rms_norms<N, V, THREADS>;

#ifdef __CUDACC__
FOR_FORWARD_ON_CUDA(INSTANTIATE_RMS_NORMS)
#else
FOR_FORWARD_ON_METAL(INSTANTIATE_RMS_NORMS)
#endif
