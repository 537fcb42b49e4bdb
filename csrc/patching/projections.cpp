// Copyright © 2026 mlx_norms contributors

#include <algorithm>
#include <span>

#include "csrc/common/backend.h"
#include "csrc/linear/norm_linear.h"
#include "csrc/linear/plan.h"
#include "csrc/norm/fallback.h"
#include "csrc/patching/plans.h"
#include "csrc/patching/report.h"

namespace mlx_norms {

namespace {

constexpr size_t kMaxProjections = 4;

// The (N, K) array of which `a`, (K, N), is the transpose; or null.
const array* transpose_of(const array& a) {
  return is_pending(a, "Transpose") && a.ndim() == 2 ? &a.inputs()[0] : nullptr;
}

// The vector that `a` repeats for each row; or null.
const array* repeated_vector(const array& a) {
  return is_pending(a, "Broadcast") && a.inputs()[0].ndim() == 1 &&
          a.inputs()[0].shape(0) == a.shape(-1)
      ? &a.inputs()[0]
      : nullptr;
}

// A norm's options and inputs.
struct Separated {
  NormSpec spec;
  Arrays inputs;
  OptionalArray sum; // in place of the norm's, which spec has not
};

// Whether MLX's ops can compute what the norm's prologue has beside a sum.
bool is_separable(const NormSpec& spec, const Arrays& inputs) {
  NormInputs in(spec.operands, inputs.data());
  auto* residual = in[kResidual];
  if (spec.clamp &&
      (!residual || in.x().dtype() != mx::float16 ||
       residual->dtype() != mx::float16 || spec.is_factored())) {
    return false;
  }
  bool has_others = !(spec == SumNumbers{.factor = spec.factor});
  if (spec.norm_first || spec.axis != -1 || has_others || spec.is_modulated() ||
      spec.is_gated() || spec.is_multiplied() || !spec.is_of_mean_and_eps()) {
    return false;
  }
  return !spec.is_factored() ||
      ((spec.rounding == Rounding::Early || spec.factor_of_sum) &&
       (!in[kFactor] || product_keeps(in.x().dtype(), *in[kFactor])));
}

// The same norm, of what MLX's ops compute of the prologue.
Separated separated(NormSpec spec, const Arrays& inputs, mx::Stream s) {
  NormInputs in(spec.operands, inputs.data());
  auto x = in.x();
  auto* residual = in[kResidual];
  OptionalArray of_ops; // the sum
  if (spec.factor_of_sum) {
    auto factor = mx::reshape(*in[kFactor], {1}, s);
    of_ops = x = mx::multiply(mx::add(x, *residual, s), factor, s);
    residual = nullptr;
    spec = spec.without_sum();
  } else if (spec.clamp) {
    of_ops = x = clamped_sum(x, *residual, s);
    residual = nullptr;
    spec.clamp = false;
  } else if (spec.is_factored()) {
    auto factor =
        in[kFactor] ? *in[kFactor] : array(float{spec.factor}, x.dtype());
    x = mx::multiply(x, factor, s);
    spec.factor = 1.0f;
  }
  for (auto operand : in.present().only(kAddends).without({kX, kResidual})) {
    x = mx::add(x, *residual, s);
    residual = in[operand];
  }
  in = in.without_sum(x);
  in[kResidual] = residual;
  spec.operands = in.present();
  return {spec, in.arrays(), of_ops};
}

// A matmul of the norm's rows with a weight.
struct Projected {
  const array* output; // of x's shape except for the last axis
  Projection projection;
  std::span<const array> weight;
  const array* bias = nullptr;
};

class ProjectionPass {
 public:
  explicit ProjectionPass(Graph& graph) : graph_(graph) {}

  int run() {
    int fused = 0;
    for (auto* norm : graph_.all(Kind::Norm)) {
      fused += fuse(*norm);
    }
    return fused;
  }

 private:
  // Fuses `a` if it is a norm whose rows are used only by matmuls.
  bool fuse(const array& a) {
    auto* norm = op_of<Norm>(a);
    if (!norm || a.sibling_position() != 0 || a.is_tracer() ||
        !is_separable(norm->spec, a.inputs()) || graph_.is_root(a) ||
        static_cast<int>(a.siblings().size()) + 1 != norm->spec.n_outputs()) {
      return false;
    }
    auto stream = a.primitive().stream();
    auto takers = takers_of_rows(a);
    if (takers.empty() || takers.size() > kMaxProjections) {
      return false;
    }
    NormInputs in(norm->spec.operands, a.inputs().data());
    for (auto operand : {kWeight, kBias}) {
      if (in[operand] && !is_readable(*in[operand])) {
        return false;
      }
    }
    std::vector<Projected> products;
    products.reserve(takers.size());
    // Goes in the order of the graph's nodes.
    for (auto it = takers.rbegin(); it != takers.rend(); ++it) {
      auto product = product_of(*it->rows, *it->node, stream);
      if (!product) {
        return false;
      }
      products.push_back(*product);
    }

    if (!has_gpu_kernels(stream) || are_faster_apart(a, products, stream)) {
      return false;
    }
    auto [plain, inputs, sum] = separated(norm->spec, a.inputs(), stream);
    NormLinearSpec spec;
    spec.norm = plain;
    auto* gated = gated_pair(products);
    spec.gated = gated != nullptr;
    inputs.reserve(inputs.size() + 4 * products.size());
    spec.projections.reserve(products.size());
    for (auto& [output, projection, weight, bias] : products) {
      spec.projections.push_back(projection);
      inputs.insert(inputs.end(), weight.begin(), weight.end());
      if (bias) {
        inputs.push_back(*bias);
      }
    }
    NormLinear op(std::move(spec), inputs);
    auto made = made_of(shared(std::move(op)), std::move(inputs), stream);
    if (!made) {
      return false;
    }
    Arrays outputs;
    if (gated) {
      outputs.push_back(*gated);
    } else {
      for (auto& product : products) {
        outputs.push_back(*product.output);
      }
    }
    recount(a, Counted::WithOthers);
    if (norm->spec.has(kResidual)) {
      auto s = a.siblings()[0];
      if (sum) { // by MLX's operations
        graph_.add({{s}, sum->primitive_ptr(), sum->inputs()});
        made->inputs[0] = s;
      } else {
        outputs.push_back(s);
      }
      norm_of_sum(a, s);
    }
    return graph_.add(
        {std::move(outputs), std::move(made->node), std::move(made->inputs)});
  }

  // Nothing pending takes the norm any more; for whoever holds it, it becomes
  // one of the sum.
  void norm_of_sum(const array& a, const array& sum) {
    const auto& norm = *op_of<Norm>(a);
    auto spec = norm.spec.without_sum();
    spec.clamp = false;
    NormInputs in(norm.spec.operands, a.inputs().data());
    auto inputs = in.without_sum(sum).arrays();
    auto node = std::make_shared<Node>(
        a.primitive().stream(), shared(Norm(spec, norm.dtypes[0], inputs)));
    graph_.add({{a}, std::move(node), std::move(inputs)});
  }

  // Whether quantized products are left to plan_products(): by tiles they are
  // faster, from a few rows on, than by lanes with the norm.
  static bool are_faster_apart(
      const array& normalized,
      const std::vector<Projected>& products,
      mx::Stream stream) {
    constexpr int64_t kMaxRows = 2; // on an H200, in an 8B llama
    int64_t rows = normalized.size() / normalized.shape(-1);
    return rows > kMaxRows && multiplies_by_tiles(stream) &&
        std::ranges::all_of(products, [&](const Projected& p) {
             return p.projection.bits &&
                 is_faster(p.projection, p.weight[0], rows, stream);
           });
  }

  struct Taker {
    const array* rows; // as `node` uses them
    const array* node;
  };

  // The nodes that use the norm's rows, directly or through an identity
  // function with its own gradient, as in mlx.nn's sharded layers. In the order
  // of Graph::for_takers.
  std::vector<Taker> takers_of_rows(const array& a) const {
    std::vector<Taker> found;
    found.reserve(kMaxProjections);
    graph_.for_takers(a, [&](const array& taker) {
      if (returns(taker, a)) {
        graph_.for_takers(taker, [&](const array& behind) {
          found.push_back({&taker, &behind});
        });
      } else if (!is_result_of_such_a_function(taker, a)) {
        found.push_back({&a, &taker});
      }
    });
    return found;
  }

  // Whether `function` is such a function of `a`. MLX's node of one has its
  // argument and its result as inputs.
  bool returns(const array& function, const array& a) const {
    return is_pending(function, "CustomTransforms") &&
        function.inputs().size() == 2 && function.siblings().empty() &&
        !function.is_tracer() && !graph_.is_root(function) &&
        function.inputs()[0].id() == a.id() &&
        is_pending(function.inputs()[1], "StopGradient") &&
        function.inputs()[1].inputs()[0].id() == a.id();
  }

  bool is_result_of_such_a_function(const array& result, const array& a) const {
    auto* function = is_pending(result, "StopGradient")
        ? graph_.only_taker(result)
        : nullptr;
    return function && returns(*function, a);
  }

  // The matmul of the rows that `taker` is or leads to, if there is one and its
  // weight has been evaluated.
  std::optional<Projected>
  product_of(const array& rows, const array& taker, mx::Stream stream) const {
    const auto* product = &taker;
    const auto* factor = &rows;
    if (is_reshape(name_of(taker))) {
      factor = &taker;
      product = graph_.only_taker(taker);
    }
    if (!product || product->inputs()[0].id() != factor->id()) {
      return std::nullopt;
    }
    auto found = is_pending(*product, "QuantizedMatmul") ? quantized(*product)
                                                         : dense(*product);
    if (!found) {
      return std::nullopt;
    }
    auto shape = rows.shape();
    shape.back() = found->weight[0].shape(0);
    if (found->output->shape() != shape) {
      auto* reshaped = graph_.only_taker(*found->output);
      if (!reshaped || !is_reshape(name_of(*reshaped)) ||
          reshaped->shape() != shape) {
        return std::nullopt;
      }
      found->output = reshaped;
    }
    add_bias(*found);
    bool fits = found->output->dtype() == rows.dtype() &&
        product->primitive().stream() == stream &&
        found->output->primitive().stream() == stream &&
        std::ranges::all_of(found->weight, is_readable) &&
        (!found->bias || is_readable(*found->bias));
    return fits ? found : std::nullopt;
  }

  std::optional<Projected> dense(const array& product) const {
    bool added = is_pending(product, "AddMM");
    if (!added && !is_pending(product, "Matmul")) {
      return std::nullopt;
    }
    auto* weight = transpose_of(product.inputs()[1]);
    if (!weight) {
      return std::nullopt;
    }
    Projected found{&product, {}, {weight, 1}};
    if (added) {
      found.bias = repeated_vector(product.inputs()[2]);
      if (!found.bias ||
          state_of<mx::AddMM>(product) != std::pair(1.0f, 1.0f)) {
        return std::nullopt;
      }
      found.projection.bias = true;
    }
    return found;
  }

  std::optional<Projected> quantized(const array& product) const {
    auto form = stored_form(product);
    if (!form) {
      return std::nullopt;
    }
    return Projected{&product, *form, std::span(product.inputs()).subspan(1)};
  }

  // Adds the bias of a layer that adds it in an op of its own.
  void add_bias(Projected& product) const {
    auto* sum = graph_.only_taker(*product.output);
    if (!sum || product.bias || !is_pending(*sum, "Add") ||
        sum->inputs()[0].id() != product.output->id()) {
      return;
    }
    auto* bias = repeated_vector(sum->inputs()[1]);
    if (bias && sum->shape() == product.output->shape() &&
        bias->dtype() == sum->dtype() && !is_pending(*bias)) {
      product.projection.bias = true;
      product.bias = bias;
      product.output = sum;
    }
  }

  // The node silu(first) * second, if nothing else uses the two matmuls; or
  // null. The gate is made the first one.
  const array* gated_pair(std::vector<Projected>& products) const {
    if (products.size() != 2) {
      return nullptr;
    }
    auto* pair = graph_.only_taker(*products[0].output);
    if (!pair || pair != graph_.only_taker(*products[1].output)) {
      return nullptr;
    }
    auto gated = as_gated(*pair);
    if (!gated || pair->shape() != products[0].output->shape() ||
        pair->shape() != products[1].output->shape() ||
        pair->primitive().stream() !=
            products[0].output->primitive().stream()) {
      return nullptr;
    }
    if (gated->gate.id() != products[0].output->id()) {
      std::swap(products[0], products[1]);
    }
    return pair;
  }

  Graph& graph_;
};

} // namespace

int plan_projections(Graph& graph) {
  return ProjectionPass(graph).run();
}

} // namespace mlx_norms
