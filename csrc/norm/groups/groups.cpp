// Copyright © 2026 mlx_norms contributors

#include "csrc/norm/groups/groups.h"

#include "csrc/common/checks.h"

namespace mlx_norms {

void check_groups(const char* op, const NormSpec& spec, const NormInputs& in) {
  const auto& x = in.x();
  Operands vectors{kWeight, kBias};
  if (spec.has_running_statistics()) {
    vectors = vectors.with({kMean, kVariance});
  }
  for (auto operand : spec.operands.only(vectors)) {
    check_vector(op, kOperandTraits[operand].name, *in[operand], x);
  }
  if (spec.groups && x.shape(-1) % spec.groups != 0) {
    refuse(op, "num_groups must divide the number of channels.");
  }
}

mx::Shape per_sample(const NormSpec& spec, const array& x, int last) {
  auto begin = x.shape().begin();
  mx::Shape shape(begin, begin + spec.sample_axes);
  shape.push_back(last);
  return shape;
}

bool takes_means(const NormVJP& op) {
  return op.wanted.has(kX) && !op.norm.has_running_statistics();
}

bool sums_at_once(const NormVJP& op, int chunks, int of_group) {
  return chunks == 1 && (!takes_means(op) || of_group == 1);
}

} // namespace mlx_norms
