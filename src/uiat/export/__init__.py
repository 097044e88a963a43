"""Export of a trained network as a folder that loads with PyTorch, without this package."""
