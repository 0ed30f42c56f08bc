"""A command that trains leaves torch's compiler unimported, and its steps give the same bits as with it."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
from capsbench.cli.compiler import leave_out_compiler
leave_out_compiler()
import torch
from torch.optim import Adam, optimizer
from capsbench.models.flops import flops

class Theirs(Adam):
    step = optimizer._use_grad_for_differentiable(Adam.step.__wrapped__)

def trained(kind):
    torch.manual_seed(0)
    layer = torch.nn.Linear(7, 5)
    adam = kind(layer.parameters(), lr=1e-2, fused=True)
    for _ in range(4):
        adam.zero_grad()
        layer(torch.randn(3, 7)).square().sum().backward()
        adam.step()
    adam.load_state_dict(adam.state_dict())
    assert all(not value.requires_grad for state in adam.state.values() for value in state.values())
    return [*layer.parameters(), *(value for state in adam.state.values() for value in state.values())]

ours = trained(Adam)
assert flops(lambda: torch.ones(2, 3) @ torch.ones(3, 4)) == 48
assert "torch._dynamo" not in sys.modules
theirs = trained(Theirs)
assert "torch._dynamo" in sys.modules
assert len(ours) == len(theirs) == 8
assert all(map(torch.equal, ours, theirs))
"""


def test_adam_and_the_counter_of_flops_do_without_it_and_give_the_same_bits() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_where_it_is_imported_already_nothing_is_changed() -> None:
    code = """
import torch._dynamo
before = dict(vars(torch.optim.Optimizer)), torch.optim.Adam.step
from capsbench.cli.compiler import leave_out_compiler
leave_out_compiler()
assert before == (dict(vars(torch.optim.Optimizer)), torch.optim.Adam.step)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
