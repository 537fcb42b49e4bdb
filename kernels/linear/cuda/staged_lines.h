// Copyright (c) 2026 mlx_norms contributors
//
// What a threadgroup reads of a quantized matrix: 32 lines, of which each
// SIMD-group takes 128 bytes at a time in turn. On CUDA a step's words are
// copied to threadgroup memory in the order of memory, of which each lane needs
// others than it copies. Scales and biases are fetched to registers one step
// before.

#pragma once

#include "kernels/linear/cuda/packed_tiles.h"

constant bool words_staged [[function_constant]];

constant constexpr int kTileLines = 32;             // of a threadgroup
constant constexpr int kLaneLines = kTileLines / 8; // row, row + 8, ...
constant constexpr int kCopies = kTileLines / 4;    // of 16 bytes, per lane

// The words of one line's group that a lane has.
inline void load_words(device const uint* from, thread uint* to) {
  for (int k = 0; k < 8; k += 4) {
    if (linear_aligned && k < group_words && group_words % 4 == 0) {
      uint4 v = *(device const uint4*)(from + k);
      to[k] = v.x;
      to[k + 1] = v.y;
      to[k + 2] = v.z;
      to[k + 3] = v.w;
    }
  }
  if (linear_aligned && group_words == 2) {
    uint2 v = *(device const uint2*)from;
    to[0] = v.x;
    to[1] = v.y;
  }
  for (int k = 0; k < 8; ++k) {
    if (k < group_words && (!linear_aligned || group_words == 1)) {
      to[k] = from[k];
    }
  }
}

// Where a line's 16 bytes are among eight of them, so that lanes which load
// together use different banks.
inline uint swizzled(uint chunk, uint line) {
  uint chunks_apart = group_words == 8 ? 1 : uint(group_words);
  return chunk ^ (line * chunks_apart % 8);
}

template <int S> // SIMD-groups
struct StagedLines {
  device const uint* words;
  uint first, lines; // the threadgroup's first one, and all of w
  uint line_words;
  uint lane;
  device const uint* next; // of the lane's first line, to be copied
  uint next_word;          // the same in the line

  void start_lines(
      device const uchar* w,
      uint first_line,
      uint all_lines,
      uint length,
      uint simd,
      uint of_lane) thread {
    words = (device const uint*)w;
    first = first_line;
    lines = all_lines;
    line_words = length / uint(word_elements);
    lane = of_lane;
    next_word = simd * 32;
    next = words + (first + lane / 8) * line_words + next_word;
    copy_next();
  }

  // Waits for the words of the current step.
  void arrive_words() const thread {
#ifdef __CUDACC__
    if (words_staged) {
      await_copies<0>();
      simdgroup_barrier(mem_flags::mem_threadgroup);
    }
#endif
  }

  // A lane's words of group g of a step, those of its line i at 8 i. What is
  // not there is any bits.
  void words_of_group(uint step, int g, bool there, thread uint* to)
      const thread {
    uint row = lane / 4;
    uint from = (uint(g) * 4 + lane % 4) * uint(group_words); // in the step
    for (int i = 0; i < kLaneLines; ++i) {
      if (words_staged) {
        staged_words(i, row, from, to + i * 8);
      } else if (there) {
        uint line = min(first + uint(i) * 8 + row, lines - 1);
        load_words(words + line * line_words + step * 32 + from, to + i * 8);
      } else {
        for (int k = 0; k < 8; ++k) {
          to[i * 8 + k] = 0;
        }
      }
    }
  }

  // Starts to copy the next step, once all lanes have read the current one.
  void copy_next() thread {
#ifdef __CUDACC__
    if (words_staged) {
      simdgroup_barrier(mem_flags::mem_threadgroup);
      for (int i = 0; i < kCopies; ++i) {
        uint line = uint(i) * 4 + lane / 8;
        uint chunk = swizzled(lane % 8, line);
        uint word = next_word + (whole ? 0 : chunk * 4);
        if (first + line < lines && word < line_words) {
          copy_to_stage(i, next + (i * 4 * line_words + chunk * 4));
        }
      }
      group_copies();
      next += S * 32;
      next_word += S * 32;
    }
#endif
  }

  void staged_words(int i, uint row, uint from, thread uint* to) const thread {
#ifdef __CUDACC__
    int place = i * 2 + int(row / 4);
    for (int k = 0; k < group_words; k += 4) {
      uint chunk = swizzled((from + uint(k)) / 4, row);
      const uint4* v = staged_vector_of_lane(place, row % 4 * 8 + chunk);
      if (group_words >= 4) {
        to[k] = v->x;
        to[k + 1] = v->y;
        to[k + 2] = v->z;
        to[k + 3] = v->w;
      } else if (group_words == 2) {
        uint2 pair = reinterpret_cast<const uint2*>(v)[from % 4 / 2];
        to[0] = pair.x;
        to[1] = pair.y;
      } else {
        to[0] = reinterpret_cast<const uint*>(v)[from % 4];
      }
    }
#endif
  }
};

// The scales or biases of a step's groups: the bits of 16-bit ones.
struct GroupValues {
  uint words[4];
};

inline GroupValues
load_groups(device const uchar* values, uint at, uint count) {
  GroupValues v;
  for (int k = 0; k < 4; ++k) {
    v.words[k] = 0;
  }
  device const ushort* from = (device const ushort*)values + at;
  if (quantized_type == kFloat32) { // loaded as they are used
    return v;
  }
  if (whole && linear_aligned && step_groups > 1) {
    if (step_groups == 8) {
      uint4 bits = *(device const uint4*)from;
      v.words[0] = bits.x;
      v.words[1] = bits.y;
      v.words[2] = bits.z;
      v.words[3] = bits.w;
    } else if (step_groups == 4) {
      uint2 bits = *(device const uint2*)from;
      v.words[0] = bits.x;
      v.words[1] = bits.y;
    } else {
      v.words[0] = *(device const uint*)from;
    }
    return v;
  }
  for (int g = 0; g < 8; ++g) {
    if (g < step_groups && uint(g) < count) {
      v.words[g / 2] |= uint(from[g]) << (g % 2 * 16);
    }
  }
  return v;
}

// The scales and biases of a lane's lines.
template <int S>
struct GroupsAhead {
  device const uchar* scales;
  device const uchar* zeros;
  uint line_groups;
  uint now;            // the current step's first group
  uint at[kLaneLines]; // the lines' first groups
  GroupValues scales_now[kLaneLines], zeros_now[kLaneLines];
  GroupValues next_scales[kLaneLines], next_zeros[kLaneLines];

  void start_groups(
      device const uchar* all_scales,
      device const uchar* all_zeros,
      uint first,
      uint lines,
      uint length,
      uint simd,
      uint row) thread {
    scales = all_scales;
    zeros = all_zeros;
    line_groups = length / uint(linear_group_size);
    for (int i = 0; i < kLaneLines; ++i) {
      at[i] = min(first + uint(i) * 8 + row, lines - 1) * line_groups;
    }
    fetch_groups(simd);
  }

  void fetch_groups(uint step) thread {
    uint group = step * uint(step_groups);
    if (group < line_groups) {
      for (int i = 0; i < kLaneLines; ++i) {
        next_scales[i] =
            load_groups(scales, at[i] + group, line_groups - group);
        next_zeros[i] = load_groups(zeros, at[i] + group, line_groups - group);
      }
    }
  }

  // Makes a step the current one, and fetches the next.
  void arrive_groups(uint step) thread {
    now = step * uint(step_groups);
    for (int i = 0; i < kLaneLines; ++i) {
      scales_now[i] = next_scales[i];
      zeros_now[i] = next_zeros[i];
    }
    fetch_groups(step + S);
  }

  bool has_group(int g) const thread {
    return whole || now + uint(g) < line_groups;
  }

  // Those of group g of line i.
  float2 scale_and_zero(int i, int g) const thread {
    if (quantized_type == kFloat32) {
      uint group = has_group(g) ? at[i] + now + uint(g) : 0;
      float2 both = float2(
          ((device const float*)scales)[group],
          ((device const float*)zeros)[group]);
      return has_group(g) ? both : float2(0.0f, 0.0f);
    }
    uint half_word = g % 2 * 16;
    uint scale = scales_now[i].words[g / 2] >> half_word;
    uint zero = zeros_now[i].words[g / 2] >> half_word;
    float4 both =
        widen(uint2((scale & 0xffffu) | zero << 16, 0), quantized_type);
    return float2(both.x, both.y);
  }
};
