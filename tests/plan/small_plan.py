"""A small plan with a variant of its own, from which tests make others."""

PLAN = """
name: small
budget: reduced
seeds: [0, 1]
width: 0.125
training:
  epochs: 2
  batch: 64
variants:
  mine: {base: capsnet-r3, squash: half}
tasks:
  mnist:
    variants: [cnn, mine]
    test_images: 100
"""
