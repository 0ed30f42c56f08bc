"""What a process is set up with before it trains or evaluates."""

from __future__ import annotations

import os
import subprocess
import sys

SET_UP = """
import os
import sys
import torch
from capsbench.training.device import set_up

set_up(1)
print(os.environ["CUBLAS_WORKSPACE_CONFIG"], "NVIDIA_TF32_OVERRIDE" in os.environ)
print(torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled())
print(torch.get_num_threads(), torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32)
print("torch._inductor" in sys.modules)
import torch._inductor.config
print(torch._inductor.config.deterministic)
"""


def test_algorithms_are_deterministic_and_the_compiler_is_not_imported_for_it() -> None:
    inherited = {"CUBLAS_WORKSPACE_CONFIG": ":0:0", "NVIDIA_TF32_OVERRIDE": "1"}
    said = subprocess.run(
        [sys.executable, "-c", SET_UP], capture_output=True, text=True, check=True, env=os.environ | inherited
    )
    assert said.stdout.splitlines() == [":4096:8 False", "True False", "1 False False", "False", "True"]
