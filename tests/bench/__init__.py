"""A small setting for benchmarks."""

import torch

from uiat.bench.setting import BenchSetting
from uiat.models import ResNet
from uiat.types import DataSpec

CPU = torch.device("cpu")
SETTING = BenchSetting(ResNet(blocks=(1,), width=2), DataSpec(3, 20, (3, 8, 8)), 6, CPU)
