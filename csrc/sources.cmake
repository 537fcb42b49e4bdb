# The sources of the extension by what they need.
set(MLX_NORMS_CORE_SOURCES
    csrc/bindings.cpp
    csrc/backend.cpp
    csrc/checks.cpp
    csrc/compose.cpp
    csrc/interpreter.cpp
    csrc/linear.cpp
    csrc/linear_bindings.cpp
    csrc/linear_checks.cpp
    csrc/linear_ops.cpp
    csrc/matmul.cpp
    csrc/nodes.cpp
    csrc/norm.cpp
    csrc/norm_vjp.cpp
    csrc/ops.cpp
    csrc/outputs.cpp
    csrc/self_check.cpp
    csrc/sharded.cpp
    csrc/split.cpp
    csrc/ladders/bindings.cpp
    csrc/ladders/layer_norm.cpp
    csrc/ladders/layer_norm_eval.cpp
    csrc/ladders/layer_norm_rungs.cpp
    csrc/ladders/matmul_eval.cpp
    csrc/ladders/matmul_rung.cpp
    csrc/ladders/sgemm_rungs.cpp
    csrc/patching/bindings.cpp
    csrc/patching/fuse_graph.cpp
    csrc/patching/fuse_projections.cpp
    csrc/patching/fusion.cpp
    csrc/patching/outcome.cpp
    csrc/patching/patched.cpp
    csrc/patching/pending.cpp
    csrc/patching/pending_graph.cpp
    csrc/patching/slower.cpp
    csrc/plan/geometry.cpp
    csrc/plan/launch_plan.cpp
    csrc/plan/linear_eval.cpp
    csrc/plan/linear_plan.cpp
    csrc/plan/norm_eval.cpp
    csrc/plan/norm_plan.cpp
    csrc/plan/norm_vjp_plan.cpp
    csrc/plan/rows.cpp)
set(MLX_NORMS_CPU_SOURCES
    csrc/cpu/isa.cpp
    csrc/cpu/linear_eval.cpp
    csrc/cpu/norm_eval.cpp
    csrc/cpu/rungs_eval.cpp
    csrc/cpu/threads.cpp)
set(MLX_NORMS_METAL_SOURCES csrc/metal/built_kernels.cpp csrc/metal/encode.cpp
                            csrc/metal/library.cpp)
set(MLX_NORMS_CUDA_SOURCES
    csrc/cuda/built_kernels.cpp csrc/cuda/cluster_graph.cpp
    csrc/cuda/cubin.cpp csrc/cuda/driver.cpp csrc/cuda/encode.cpp
    csrc/cuda/memory.cpp csrc/cuda/module.cpp)
