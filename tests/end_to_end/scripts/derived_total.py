"""A plain loop with a budget of tokens for each step, of which it makes its accumulation.

``--fixed`` makes as many micro-batches whatever their size.
"""

import argparse
import sys

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=4, help="of a rank, in sequences")
parser.add_argument("--sequence_length", type=int, default=16)
parser.add_argument("--total_batch_size", type=int, default=256, help="of a step, in tokens")
parser.add_argument("--fixed", action="store_true")
args = parser.parse_args()
B, T = args.batch_size, args.sequence_length
tokens_per_pass = B * T
assert args.total_batch_size % tokens_per_pass == 0 or args.fixed
grad_accum_steps = 4 if args.fixed else args.total_batch_size // tokens_per_pass
torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Embedding(64, 32), torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 64)
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(60):
    optimizer.zero_grad(set_to_none=True)
    for _ in range(grad_accum_steps):
        tokens = torch.randint(0, 64, (B, T + 1))
        logits = model(tokens[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        torch.autograd.backward(loss / grad_accum_steps)
    optimizer.step()
sys.stdout.write(f"trained with {B} x {grad_accum_steps}\n")
