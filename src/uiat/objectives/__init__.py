"""Objectives: divergences on logits, the inverse loss of Eq. 4, and the terms of the training losses."""
