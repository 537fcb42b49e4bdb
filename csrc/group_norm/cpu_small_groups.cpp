// Copyright © 2026 mlx_norms contributors
//
// Groups of few elements, which are copied to lanes and back: calls for each
// sample, and sums across a vector, would cost more than the arithmetic.

#include "csrc/group_norm/cpu_kernels.h"
#include "csrc/group_norm/cpu_vectors.h"

namespace {

using namespace mlx_norms::cpu;

int64_t elements_of(const SmallGroups& groups) {
  return groups.positions * groups.of_group;
}

typedef float Four __attribute__((vector_size(16)));

inline Four load_four(const float* p) {
  Four v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}

inline void store_four(float* p, Four v) {
  std::memcpy(p, &v, sizeof(v));
}

inline void transpose(Four (&v)[4]) {
  Four a = __builtin_shufflevector(v[0], v[1], 0, 4, 1, 5);
  Four b = __builtin_shufflevector(v[2], v[3], 0, 4, 1, 5);
  Four c = __builtin_shufflevector(v[0], v[1], 2, 6, 3, 7);
  Four d = __builtin_shufflevector(v[2], v[3], 2, 6, 3, 7);
  v[0] = __builtin_shufflevector(a, b, 0, 1, 4, 5);
  v[1] = __builtin_shufflevector(a, b, 2, 3, 6, 7);
  v[2] = __builtin_shufflevector(c, d, 0, 1, 4, 5);
  v[3] = __builtin_shufflevector(c, d, 2, 3, 6, 7);
}

// A channel, or four, of memory and of lanes.
template <bool kToLanes, typename Memory>
inline void move_one(Memory* memory, float* lane) {
  if constexpr (kToLanes) {
    *lane = *memory;
  } else {
    *memory = *lane;
  }
}
template <bool kToLanes, typename Memory>
inline void move_four(Memory* memory, float* lanes) {
  if constexpr (kToLanes) {
    store_four(lanes, load_four(memory));
  } else {
    store_four(memory, load_four(lanes));
  }
}

// Four channels that adjoin, of four groups.
template <bool kToLanes, typename Memory>
inline void
move_square(Memory* memory, const int64_t* first, float* lanes, int64_t pitch) {
  Four v[4];
  for (int i = 0; i < 4; ++i) {
    v[i] = load_four(kToLanes ? memory + first[i] : lanes + i * pitch);
  }
  transpose(v);
  for (int i = 0; i < 4; ++i) {
    if constexpr (kToLanes) {
      store_four(lanes + i * pitch, v[i]);
    } else {
      store_four(memory + first[i], v[i]);
    }
  }
}

// Between memory and lanes, of so many positions of each group.
template <bool kToLanes, typename Memory>
void move(
    const SmallGroups& groups,
    const int64_t* first,
    int64_t positions,
    Memory* memory,
    float* lanes) {
  auto fours = groups.count / 4 * 4, channels = groups.of_group;
  auto step = groups.step, pitch = groups.lanes;
  auto squares = step == 1 ? channels / 4 * 4 : 0;
  for (int64_t p = 0; p < positions; ++p) {
    for (int64_t j = 0; groups.adjoin && j < channels; ++j) {
      for (int64_t g = 0; g < fours; g += 4) {
        move_four<kToLanes>(
            memory + first[g] + j * step, lanes + j * pitch + g);
      }
    }
    for (int64_t g = 0; !groups.adjoin && g < fours; g += 4) {
      for (int64_t j = 0; j < squares; j += 4) {
        move_square<kToLanes>(
            memory + j, first + g, lanes + j * pitch + g, pitch);
      }
      for (auto j = squares; j < channels; ++j) {
        for (int i = 0; i < 4; ++i) {
          move_one<kToLanes>(
              memory + first[g + i] + j * step, lanes + j * pitch + g + i);
        }
      }
    }
    for (auto g = fours; g < groups.count; ++g) {
      for (int64_t j = 0; j < channels; ++j) {
        move_one<kToLanes>(memory + first[g] + j * step, lanes + j * pitch + g);
      }
    }
    memory += groups.channels;
    lanes += channels * pitch;
  }
}

// Lanes without a group are zeros.
void gather(const SmallGroups& groups, const float* from, float* lanes) {
  move<true>(groups, groups.first_element, groups.positions, from, lanes);
  auto elements = elements_of(groups);
  for (auto g = groups.count; g % kWidth != 0; ++g) {
    for (int64_t element = 0; element < elements; ++element) {
      lanes[element * groups.lanes + g] = 0.0f;
    }
  }
}

// Calls f(element, j) for each position's channel j of a group.
template <typename F>
[[gnu::always_inline]] inline void for_elements(
    const SmallGroups& groups,
    F f) {
  int64_t element = 0;
  for (int64_t p = 0; p < groups.positions; ++p) {
    for (int64_t j = 0; j < groups.of_group; ++j, ++element) {
      f(element, j);
    }
  }
}

// One of each lane.
struct alignas(64) Lanes {
  float v[kMaxLanes];

  void load_from(const float* from, int64_t count) {
    std::memcpy(v, from, count * sizeof(float));
    for (auto g = count; g % kWidth != 0; ++g) {
      v[g] = 0.0f;
    }
  }
  void store_to(float* to, int64_t count) const {
    std::memcpy(to, v, count * sizeof(float));
  }
};

struct LaneStatistics {
  Lanes mean, rest, variance, rstd, shift;

  void set_factors(int64_t count, float eps) {
    for (int64_t g = 0; g < count; g += kWidth) {
      for (int64_t i = g; i < g + kWidth; ++i) {
        rstd.v[i] = 1.0f / __builtin_sqrtf(variance.v[i] + eps);
      }
      store(shift.v + g, -load(rest.v + g) * load(rstd.v + g));
    }
  }
};

// As the kernel of statistics takes them of its first rows.
void measure(
    const SmallGroups& groups,
    const float* lanes,
    LaneStatistics& statistics) {
  auto elements = elements_of(groups);
  auto count = static_cast<float>(elements);
  for (int64_t g = 0; g < groups.count; g += kWidth) {
    auto value = [=, pitch = groups.lanes](int64_t i) {
      return load(lanes + i * pitch + g);
    };
    Floats first = value(0);
    Floats apart =
        sum_of(elements, [=](int64_t i) { return value(i) - first; }) / count;
    Floats square = sum_of(elements, [=](int64_t i) {
      Floats d = value(i) - first - apart;
      return d * d;
    });
    Floats mean = first + apart;
    Floats variance = square / count;
    // inf would make the group zeros.
    variance = variance <= __FLT_MAX__ ? variance : splat(__builtin_nanf(""));
    store(statistics.mean.v + g, mean);
    store(statistics.rest.v + g, apart - (mean - first));
    store(statistics.variance.v + g, variance);
  }
}

template <Activation kActivation>
void normalize(const SmallGroupsJob& job) {
  const auto& groups = job.groups;
  auto* x = job.scratch;
  gather(groups, job.x, x);
  LaneStatistics of;
  measure(groups, x, of);
  of.set_factors(groups.count, job.eps);
  of.mean.store_to(job.mean, groups.count);
  of.rest.store_to(job.rest, groups.count);
  of.variance.store_to(job.variance, groups.count);
  for (int64_t g = 0; g < groups.count; g += kWidth) {
    Differentiated<kActivation> by{
        load(of.mean.v + g), load(of.rstd.v + g), load(of.shift.v + g), {}, {}};
    for_elements(groups, [&](int64_t element, int64_t j) {
      by.weight = load(job.weight + j * job.weight_stride + g);
      by.bias = load(job.bias + j * job.bias_stride + g);
      auto at = element * groups.lanes + g;
      store(x + at, by.result(load(x + at)));
    });
  }
  move<false>(groups, groups.first_element, groups.positions, job.y, x);
}

constexpr int64_t kSummed = 32;

template <Activation kActivation>
void differentiate(const SmallGroupsVJPJob& job) {
  const auto& groups = job.groups;
  auto elements = elements_of(groups);
  auto tile = elements * groups.lanes;
  auto* x = job.scratch;
  auto* gs = x + tile; // cotangents, then g, then its products' sums
  auto* bias_sums = gs + tile;
  auto* weight_sums = gs;
  gather(groups, job.x, x);
  gather(groups, job.cotangent, gs);
  LaneStatistics of;
  of.mean.load_from(job.mean, groups.count);
  of.rest.load_from(job.rest, groups.count);
  of.variance.load_from(job.variance, groups.count);
  of.set_factors(groups.count, job.eps);
  auto count = static_cast<float>(elements);
  for (int64_t g = 0; g < groups.count; g += kWidth) {
    Differentiated<kActivation> by{
        load(of.mean.v + g), load(of.rstd.v + g), load(of.shift.v + g), {}, {}};
    // The sums over some elements, and over all before.
    Floats of_wg = {}, of_wgn = {}, all_wg = {}, all_wgn = {};
    for_elements(groups, [&](int64_t element, int64_t j) {
      by.weight = load(job.weight + j * job.weight_stride + g);
      by.bias = load(job.bias + j * job.bias_stride + g);
      auto at = element * groups.lanes + g;
      Floats n = by.normalized(load(x + at));
      Floats d = by.sloped(load(gs + at), n);
      store(gs + at, d);
      Floats wg = d * by.weight;
      of_wg += wg;
      of_wgn += wg * n;
      if (element % kSummed == kSummed - 1) {
        all_wg += of_wg;
        all_wgn += of_wgn;
        of_wg = of_wgn = Floats{};
      }
    });
    Floats mean_wg = (all_wg + of_wg) / count;
    Floats mean_wgn = (all_wgn + of_wgn) / count;
    for_elements(groups, [&](int64_t element, int64_t j) {
      Floats weight = load(job.weight + j * job.weight_stride + g);
      auto at = element * groups.lanes + g;
      auto sum_at = j * groups.lanes + g;
      Floats n = by.normalized(load(x + at));
      Floats d = load(gs + at);
      bool first = element == j;
      Floats dn = d * n;
      store(bias_sums + sum_at, first ? d : load(bias_sums + sum_at) + d);
      store(weight_sums + sum_at, first ? dn : load(weight_sums + sum_at) + dn);
      store(x + at, (d * weight - mean_wg - n * mean_wgn) * by.rstd);
    });
  }
  if (job.input) {
    move<false>(groups, groups.first_element, groups.positions, job.input, x);
  }
  if (job.bias_sums) {
    move<false>(groups, groups.first_channel, 1, job.bias_sums, bias_sums);
    move<false>(groups, groups.first_channel, 1, job.weight_sums, weight_sums);
  }
}

} // namespace

namespace mlx_norms::cpu::group_norm::MLX_NORMS_LEVEL {

void norm_small_groups(const SmallGroupsJob& job) {
  with_result_activation(
      job.activation, [&](auto flag) { normalize<flag.value>(job); });
}

void vjp_of_small_groups(const SmallGroupsVJPJob& job) {
  with_result_activation(
      job.activation, [&](auto flag) { differentiate<flag.value>(job); });
}

} // namespace mlx_norms::cpu::group_norm::MLX_NORMS_LEVEL
