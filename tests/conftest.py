"""Tests run beside each other on few cores: one thread each is faster than many that wait for one another."""

import torch

torch.set_num_threads(1)
