"""`python -I reader.py FOLDER…`: load exports without `uiat`, and save their logits.

Each folder has `x.safetensors` with the images; `logits.safetensors` is written beside them.
"""

import importlib
import os
import sys

sys.modules["uiat"] = None  # type: ignore[assignment]  # from here on `import uiat` fails


def main(folders: list[str]) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    torch.set_num_threads(1)
    for folder in folders:
        os.chdir(folder)
        sys.path.insert(0, folder)
        importlib.invalidate_caches()
        model = importlib.import_module("model").load()
        assert not model.training
        x = load_file("x.safetensors")["x"].clone()  # a mapped file's memory is not aligned, and rounds differently
        with torch.no_grad():
            save_file({"logits": model(x)}, "logits.safetensors")
        sys.path.remove(folder)
        for name in ("model", "network"):
            sys.modules.pop(name, None)
    assert not [name for name in sys.modules if name.startswith("uiat.")]


if __name__ == "__main__":
    main(sys.argv[1:])
