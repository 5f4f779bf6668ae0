"""What `trireme bench launch` calls hello, with torchrun: join, add one number over the ranks, end."""
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
one = torch.ones(1)
dist.all_reduce(one)
assert one.item() == dist.get_world_size()
dist.destroy_process_group()
