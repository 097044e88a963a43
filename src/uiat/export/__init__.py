"""A trained network as a folder that any PyTorch user can load without this package."""
