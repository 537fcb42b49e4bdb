"""Defects planted in the fusion of sums into norms, and the tests that must see each."""

from .mutant import Mutant

PENDING = "csrc/patching/pending.cpp"
FUSION = "csrc/patching/fusion.cpp"
GRAPH = "csrc/patching/fuse_graph.cpp"
PATCHED = "csrc/patching/patched.cpp"
PROLOGUE = "csrc/patching/prologue.cpp"
PROLOGUES = "tests/patching/test_prologues.py"
SHARDED = "csrc/norm/sharded.cpp"
LAYERS = "mlx_norms/patching/layers.py"
OWN_LAYERS = "mlx_norms/nn/group_layers.py"

PATCHING_MUTANTS = [
    # --- What is a sum
    Mutant(
        "differences taken for sums",
        PENDING,
        'is_pending(a, "Add")',
        'is_pending(a, "Subtract")',
        "tests/patching/test_fusion.py::TestOperands",
    ),
    Mutant(
        "compiled sums not seen",
        PENDING,
        " || is_compiled_sum(a)",
        "",
        "tests/patching/test_models.py -k gemma3_text",
    ),
    Mutant(
        "any two broadcasts taken for a sum's",
        PENDING,
        "return c < d && d < sum && sum != std::string::npos;",
        "return true;",
        "tests/patching/test_fusion_transforms.py::TestCompile",
    ),
    Mutant(
        "evaluated sums taken for pending",
        "csrc/common/pending.h",
        "is_pending(a) && std::strcmp",
        "a.has_primitive() && std::strcmp",
        "tests/patching/test_fusion_transforms.py::TestGrad",
    ),
    Mutant(
        "repeated elements not seen",
        FUSION,
        "repeats_along_row(prologue->x) || repeats_along_row(prologue->residual)",
        "false",
        "tests/patching/test_fusion.py::TestOperands",
    ),
    Mutant(
        "pending broadcasts not seen",
        PENDING,
        "whole.ndim() == 0 || whole.shape(-1) != length",
        "false",
        "tests/patching/test_fusion.py::TestOperands",
    ),
    # --- What stands in the way
    Mutant(
        "parameters of inner transforms taken",
        PATCHED,
        "return takes_argument_unknown_to(a, x);",
        "return false;",
        "tests/patching/test_fusion_transforms.py::TestParametersOfATransformInsideThatOfTheSum",
    ),
    Mutant(
        "arguments that have lost their flag not seen",
        PENDING,
        "node.is_tracer() || is_argument_of_transform(node)",
        "node.is_tracer()",
        "tests/patching/test_fusion_transforms.py::test_argument_that_an_inner_gradient_has_reached",
    ),
    Mutant(
        "weights looked into where nothing is fused",
        PATCHED,
        "fusion == Fusion::Never ? std::nullopt : as_shifted(*weight)",
        "as_shifted(*weight)",
        "tests/patching/test_patching_threads.py",
    ),
    Mutant(
        "zero cotangents of outputs that are not used taken",
        "csrc/norm/derivatives.cpp",
        "outputs.size() > 1 && is_made_of_zeros(cotangents[out])",
        "false",
        "tests/patching/test_unused_outputs.py",
    ),
    Mutant(
        "other streams not seen",
        FUSION,
        "sum.primitive().stream() != stream",
        "false",
        "tests/patching/test_fusion.py::TestStreams",
    ),
    Mutant(
        "parameters of the sum not seen",
        FUSION,
        "if (above.meets)",
        "if (false)",
        "tests/patching/test_fusion.py::TestParameters",
    ),
    Mutant(
        "long graphs of parameters not seen",
        FUSION,
        "if (!above.ends)",
        "if (false)",
        "tests/patching/test_fusion.py::TestParameters",
    ),
    Mutant(
        "traced parameters not seen",
        FUSION,
        "above.traced && !sum.is_tracer()",
        "false",
        "tests/patching/test_fusion_transforms.py",
    ),
    # --- The fused node
    Mutant(
        "sum and norm change places",
        FUSION,
        "set_siblings(Arrays(1, fused), 0);\n  fused.set_siblings(Arrays(1, normalized), 1);",
        "set_siblings(Arrays(1, fused), 1);\n  fused.set_siblings(Arrays(1, normalized), 0);",
        "tests/patching/test_fusion.py::TestOperands",
    ),
    Mutant(
        "the sum keeps its inputs",
        FUSION,
        "  fused.inputs() = std::move(norm.inputs);\n",
        "",
        "tests/patching/test_fusion.py tests/patching/test_fusion_transforms.py",
    ),
    # --- What else is pending before a norm
    Mutant(
        "a product that others hold",
        PROLOGUE,
        "return holders_of(a) == 1;",
        "return true;",
        f"{PROLOGUES}::TestNearMisses",
    ),
    Mutant(
        "a product that others use, in a graph pass",
        GRAPH,
        "return is_inner(in) && uses_.at(in.id()) == 1;",
        "return is_inner(in);",
        f"{PROLOGUES}::TestGraphPass",
    ),
    Mutant(
        "an argument's product, in a graph pass",
        GRAPH,
        "return is_inner(in) && uses_.at(in.id()) == 1;",
        "return uses_.at(in.id()) == 1;",
        f"{PROLOGUES}::TestGraphPass",
    ),
    Mutant(
        "one element for a row as a factor",
        PROLOGUE,
        "return a.ndim() > 0 && a.shape(-1) == x.shape(-1);",
        "return a.ndim() > 0 && x.ndim() > 0;",
        f"{PROLOGUES}::TestNearMisses::test_one_element_for_a_row",
    ),
    Mutant(
        "a product that is not rounded",
        PROLOGUE,
        "rounding == Rounding::Late || ",
        "rounding != rounding || ",
        f"{PROLOGUES}::TestNearMisses::test_rounding_late",
    ),
    Mutant(
        "a clip at any bounds",
        PROLOGUE,
        "std::ranges::count(clip_residual_names(), compiled->lib_name()) > 0",
        "clip_residual_names()[0].substr(0, 30) == compiled->lib_name().substr(0, 30)",
        f"{PROLOGUES}::TestClampedSum::test_other_functions",
    ),
    Mutant(
        "names of what was compiled in a trace",
        PROLOGUE,
        "names.empty() || names[0] == names[1]",
        "names.empty()",
        f"{PROLOGUES}::TestClampedSum::test_first_seen_within_a_trace",
    ),
    Mutant(
        "the sum's stream not asked for",
        PROLOGUE,
        "sum.primitive().stream() != stream || !held_once(sum)",
        "!held_once(sum)",
        f"{PROLOGUES}::TestFactorOfSum::test_sum_on_another_stream",
    ),
    Mutant(
        "casts to 16 bits left out",
        PROLOGUE,
        'x.dtype() != mx::float32 || !is_pending(x, "AsType")',
        '!is_pending(x, "AsType")',
        f"{PROLOGUES}::TestCast::test_narrowing",
    ),
    # --- The weight's offset
    Mutant(
        "no offset of the weight",
        PATCHED,
        "plan.spec.weight_offset = shifted->offset;",
        "",
        "tests/patching/test_patching.py",
    ),
    Mutant(
        "early rounding with an offset",
        PATCHED,
        "      plan.spec.rounding = Rounding::Late;\n",
        "",
        "tests/patching/test_patching.py",
    ),
    Mutant(
        "the offset in place of the weight",
        PENDING,
        "weight.inputs()[1 - i]",
        "weight.inputs()[i]",
        "tests/patching/test_patching.py",
    ),
    # --- What is passed on
    Mutant(
        "the bias not asked for the output's dtype",
        PATCHED,
        "bias ? mx::result_type(x, *weight, *bias)\n              : mx::result_type(x, *weight)",
        "mx::result_type(x, *weight)",
        "tests/patching/test_patching.py",
    ),
    # --- The graph pass
    Mutant(
        "arguments built anew",
        GRAPH,
        " && !boundary_.count(a.id())",
        "",
        "tests/patching/test_fuse.py",
    ),
    Mutant(
        "two norms of one sum",
        GRAPH,
        "if (!is_inner(sum) || pair_of(sum)) {",
        "if (!is_inner(sum)) {",
        "tests/patching/test_fuse.py",
    ),
    Mutant(
        "planned fusions not looked through",
        GRAPH,
        "return pair ? pair->norm.inputs : a.inputs();",
        "return a.inputs();",
        "tests/patching/test_fuse.py",
    ),
    # --- Rows split over a group
    Mutant(
        "a cotangent not summed over the group",
        SHARDED,
        "-> Arrays { return {sum_over_group(cotangents[0], group)}; }",
        "-> Arrays { return {cotangents[0]}; }",
        "tests/norm/test_distributed.py",
    ),
    # --- Layers of mlx.nn, ours and patched
    Mutant(
        "statistics of a subclass not asked for",
        LAYERS,
        " or not _has(self, methods)",
        "",
        "tests/patching/test_layers.py::TestSubclasses",
    ),
    Mutant(
        "norms inside of a layer counted beside it",
        LAYERS,
        "with entered(STOCK):",
        "with entered(scope):",
        "tests/patching/test_layers.py::test_what_no_op_takes_goes_to_mlx_nn",
    ),
    Mutant(
        "running statistics exchanged",
        OWN_LAYERS,
        "self.running_mean, self.running_var = new",
        "self.running_var, self.running_mean = new",
        "tests/group_norm/test_layers.py::TestLayers",
    ),
    Mutant(
        "running statistics that do not widen the output",
        OWN_LAYERS,
        ", *(() if self.training else (mean, var)))",
        ")",
        "tests/group_norm/test_layers.py::TestLayers",
    ),
    Mutant(
        "a bias without a weight",
        OWN_LAYERS,
        '(layer.weight, layer.bias) if "weight" in layer else (None, None)',
        'layer.get("weight"), layer.get("bias")',
        "tests/group_norm/test_layers.py::test_a_bias_without_a_weight_is_not_used",
    ),
    Mutant(
        "groups always in MLX's order",
        OWN_LAYERS,
        "pytorch_compatible=self.pytorch_compatible,",
        "",
        "tests/group_norm/test_layers.py::TestLayers",
    ),
]
