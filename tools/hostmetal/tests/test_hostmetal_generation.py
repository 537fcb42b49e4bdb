"""What launches depend on of the GPU's generation, which is a setting of the software device."""

import json
import subprocess

import pytest

from hostmetal.build import for_tests

pytestmark = [pytest.mark.instrument, pytest.mark.build]

LAUNCHES = """
import json
import hostmetal
import mlx.core as mx
import mlx_norms

simulator = hostmetal.start()
mx.set_default_device(mx.cpu)
w = mx.quantize(mx.ones((32, 64)), 32)
norm_weight = mx.ones(64)
mx.eval(w, norm_weight)

def launched(call, rows):
    simulator.clear()
    mx.eval(call(mx.ones((rows, 64))))
    simulator.wait()
    return [launch.kernel for launch in simulator.launches]

calls = {
    "product": lambda x: mlx_norms.quantized_matmul(x, *w, group_size=32),
    "norm": lambda x: mlx_norms.rms_norm_linear(x, norm_weight, (w,)),
}
print(json.dumps({
    name: [rows for rows in range(1, 18) if any("norm_linear" in k for k in launched(call, rows))]
    for name, call in calls.items()
}))
"""


@pytest.mark.parametrize("generation, most", [(13, 8), (15, 4), (17, 4)])
def test_rows_of_a_product_in_one_launch(generation, most):
    build = for_tests("_ext")
    variables = {"HOSTMETAL_GENERATION": str(generation), "MLX_NORMS_SELF_CHECK": "0"}
    done = build.python("-c", LAUNCHES, variables=variables, stdout=subprocess.PIPE, check=True)
    few = list(range(1, most + 1))
    assert json.loads(done.stdout) == {"product": few, "norm": few}
