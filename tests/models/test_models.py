"""Models: exact parameter counts, shapes, and the faults of published re-implementations."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from capsbench.errors import PlanError
from capsbench.models import build_model, count_parameters
from capsbench.models.capsnet import CapsNet
from capsbench.models.layout import channels_last
from capsbench.routing import squash

COUNTS = [  # paper.md of the project's facts; section 4 of the paper says 8.2M, 6.8M and 35.4M
    ("capsnet-r3-recon", 28, 8_215_568),
    ("capsnet-r3", 28, 6_804_224),
    ("capsnet-r1-recon", 28, 8_215_568),
    ("capsnet-r1", 28, 6_804_224),
    ("capsnet-r3-recon", 36, 11_361_808),
    ("capsnet-r3", 36, 9_425_664),
    ("capsnet-r3-recon", 40, 13_475_648),
    ("capsnet-r3", 40, 11_227_904),
    ("capsnet-official", 28, 8_215_568 + 160),
    ("cnn", 28, 35_445_522),
    ("cnn", 40, 69_704_466),
    ("cnn-valid", 28, 13_277_970),
    ("cnn-valid", 36, 26_712_850),
    ("cnn-valid", 40, 35_445_522),
    ("multimnist-cnn", 36, 24_563_978),
    ("two-digit-average-mlp", 28, 276_810),
    ("two-digit-kmeans", 28, 279_488),
    # routing: the paper's CapsNet and what the algorithm trains, I = 1152 inputs, J = 10 outputs, D = 16, d = 8
    ("capsnet-uniform", 28, 8_215_568),
    ("capsnet-kmeans", 28, 8_215_568),
    ("capsnet-learned", 28, 8_215_568 + 1152 * 10),
    ("capsnet-prior", 28, 8_215_568 + 1152 * 10),
    ("capsnet-self-attention", 28, 8_215_568 + 1152 * 10),
    ("capsnet-scaled-distance", 28, 8_215_568 + 10 * 16),
    ("capsnet-em-vector", 28, 8_215_568 + 2 * 10),
    ("capsnet-inverted-attention", 28, 8_215_568 + 3 * 16),
    ("capsnet-self-routing", 28, 8_215_568 + 1152 * 10 * (8 + 1)),
    ("capsnet-bias-official", 28, 8_215_568 + 160),
    # W of 32 types, or one W, instead of 1152
    ("capsnet-share-type", 28, 8_215_568 - (1152 - 32) * 1280),
    ("capsnet-shared-uniform", 40, 13_475_648 - (4608 - 32) * 1280),
    ("capsnet-share-all", 28, 8_215_568 - (1152 - 1) * 1280),
    ("capsnet-share-all-learned", 28, 8_215_568 - (1152 - 1) * 1280 + 1152 * 10),
    # the decoder sees 16 numbers instead of 160
    ("capsnet-agnostic", 28, 8_215_568 - 144 * 512),
    # 192 features to ten vectors of 16-D, and CapsNet's decoder
    ("cnn-recon", 28, 35_445_522 + 193 * 160 + (8_215_568 - 6_804_224)),
    ("cnn-margin", 28, 35_445_522),
    ("cnn-recon-margin", 28, 35_445_522 + 193 * 160 + (8_215_568 - 6_804_224)),
    ("resnet-parameters", 28, 8_192_700),
    ("resnet-flops", 28, 1_695_960),
    ("convnet-avg", 40, 5_332_234),
    ("convnet-avg-5", 40, 1_647_882),
    # 68K (Hinton et al. 2018, table 1, with five classes): conv 1,664; primary 8,840; 18,464; 36,896; classes 2,580
    ("em-matrix", 28, 1_664 + 8_840 + 18_464 + 36_896 + 2_580),
    ("em-matrix", 40, 68_444),
]


@pytest.mark.parametrize(("variant", "size", "count"), COUNTS)
def test_exact_parameter_counts(variant: str, size: int, count: int) -> None:
    with torch.device("meta"):
        assert count_parameters(build_model(variant, size)) == count


def test_the_pooling_cnn_has_capsnet_s_parameters_within_one_percent() -> None:
    with torch.device("meta"):
        assert abs(count_parameters(build_model("cnn-pool", 40)) / 13_475_648 - 1) < 0.01


def test_couplings_are_not_parameters() -> None:
    with torch.device("meta"):
        shapes = {name: tuple(p.shape) for name, p in build_model("capsnet-r3").named_parameters()}
    assert shapes["digit_caps.weight"] == (1152, 10, 8, 16)
    assert len([name for name in shapes if name.startswith("digit_caps")]) == 1


def small(**keys: object) -> CapsNet:
    torch.manual_seed(0)
    return build_model({"base": "capsnet-r3-recon", "channels": 16, "primary_types": 2, "decoder": [8, 16], **keys})


def test_capsnet_s_shapes() -> None:
    model = small()
    output = model(torch.rand(3, 1, 28, 28))
    assert model.primary_capsules(torch.rand(3, 1, 28, 28)).shape == (3, 72, 8)
    assert output.scores.shape == (3, 10)
    assert output.poses.shape == (3, 10, 16)
    assert output.couplings.shape == (3, 72, 10)
    assert model.reconstruct(output.poses, torch.tensor([1, 2, 3])).shape == (3, 28, 28)


def test_a_primary_capsule_is_eight_channels_at_one_place() -> None:
    """A `view` without a permutation would mix places into one capsule."""
    model = small(primary_squash="none")
    images = torch.rand(1, 1, 28, 28)
    u = model.primary_capsules(images)  # [1, 2*36, 8]
    maps = model.primary(torch.relu(model.conv1(images)))  # [1, 2*8, 6, 6]
    for kind, row, column in [(0, 0, 0), (0, 2, 3), (1, 5, 4)]:
        torch.testing.assert_close(
            u[0, kind * 36 + row * 6 + column], maps[0, kind * 8 : kind * 8 + 8, row, column], rtol=1e-5, atol=1e-6
        )


def test_the_primary_convolution_has_no_relu_and_capsules_are_squashed() -> None:
    model = small()
    u = model.primary_capsules(torch.rand(4, 1, 28, 28))
    assert (u < 0).any()
    assert (u.norm(dim=-1) < 1).all()


def test_couplings_sum_to_one_over_the_ten_outputs() -> None:
    couplings = small()(torch.rand(2, 1, 28, 28)).couplings
    torch.testing.assert_close(couplings.sum(2), torch.ones(2, 72))


def test_scores_are_lengths_without_a_softmax() -> None:
    output = small()(torch.rand(2, 1, 28, 28))
    torch.testing.assert_close(output.scores, output.poses.norm(dim=-1))
    assert not torch.allclose(output.scores.sum(1), torch.ones(2), atol=1e-2)


def test_iterations_count_passes() -> None:
    images = torch.rand(2, 1, 28, 28)
    model = small()
    assert len(model(images, trace=True).trace) == 3
    assert len(model(images, iterations=5, trace=True).trace) == 5
    assert not torch.equal(model(images).scores, model(images, iterations=1).scores)


def test_the_decoder_sees_the_class_s_capsule_alone_and_in_its_place() -> None:
    model = small()
    poses = torch.rand(1, 10, 16)
    drawn = model.reconstruct(poses, torch.tensor([4]))
    others = poses.clone()
    others[:, [0, 1, 2, 3, 5, 6, 7, 8, 9]] = 7.0
    torch.testing.assert_close(model.reconstruct(others, torch.tensor([4])), drawn)
    assert not torch.allclose(model.reconstruct(poses, torch.tensor([5])), drawn)
    moved = poses.roll(1, 1)
    assert not torch.allclose(model.reconstruct(moved, torch.tensor([5])), drawn)  # the place tells the class
    agnostic = small(mask="agnostic")
    torch.testing.assert_close(
        agnostic.reconstruct(moved, torch.tensor([5])), agnostic.reconstruct(poses, torch.tensor([4]))
    )


def test_the_decoder_has_relu_between_its_layers_and_a_sigmoid_behind_the_last() -> None:
    model = small()
    poses = 3 * torch.randn(4, 10, 16)
    x = torch.zeros(4, 10, 16)
    x[range(4), [1, 0, 9, 4]] = poses[range(4), [1, 0, 9, 4]]
    first, second, last = ((layer.weight, layer.bias) for layer in model.decoder.layers)
    x = F.linear(x.flatten(1), *first)
    assert (x < 0).any()  # what ReLU takes away
    x = F.linear(F.relu(F.linear(F.relu(x), *second)), *last)
    drawn = model.reconstruct(poses, torch.tensor([1, 0, 9, 4]))
    torch.testing.assert_close(drawn, (1 / (1 + torch.exp(-x))).view(4, 28, 28))


def test_gradient_flows_through_every_pass_unless_asked_otherwise() -> None:
    images = torch.rand(2, 1, 28, 28)
    gradients = []
    for detach in (False, True):
        model = small(detach_inner=detach)
        model(images).scores.sum().backward()
        gradients.append(model.digit_caps.weight.grad)
    assert not torch.allclose(gradients[0], gradients[1], rtol=1e-3, atol=0)


def test_the_authors_choices_are_what_their_code_does() -> None:
    model = build_model({"base": "capsnet-official", "channels": 32, "primary_types": 4, "decoder": [8, 8]})
    biases = [p for name, p in model.named_parameters() if name.endswith("bias")]
    assert len(biases) == 6
    assert all((bias == 0.1).all() for bias in biases)
    assert model.digit_caps.weight.abs().max() <= 0.2
    assert model.conv1.weight.abs().max() <= 0.1
    cut = 0.88  # of a normal's deviation is left where it is truncated at twice that
    assert model.digit_caps.weight.std().item() == pytest.approx(cut * 0.1, rel=0.02)
    assert model.conv1.weight.std().item() == pytest.approx(cut * 0.05, rel=0.06)
    images = torch.rand(2, 1, 28, 28)
    maps = model.primary(torch.relu(model.conv1(images)))  # with bias
    bias = model.primary.bias
    scaled = (maps - bias[:, None, None]) / 4 + bias[:, None, None]
    expected = squash(scaled.unflatten(1, (4, 8)).flatten(3).permute(0, 1, 3, 2).flatten(1, 2))
    torch.testing.assert_close(model.primary_capsules(images), expected, rtol=1e-4, atol=1e-6)


def test_what_a_routing_trains_starts_where_the_routing_says_under_the_authors_first_weights_too() -> None:
    prior = small(init="official", routing="learned").digit_caps.routing.state_dict()
    assert [name.rsplit(".", 1)[-1] for name in prior] == ["prior"]
    assert not any(value.any() for value in prior.values())


def test_w_of_the_paper_s_capsules_starts_normal_with_a_deviation_of_a_tenth() -> None:
    weight = small().digit_caps.weight
    assert weight.mean().item() == pytest.approx(0, abs=0.002)
    assert weight.std().item() == pytest.approx(0.1, rel=0.02)
    assert weight.abs().max() > 0.3  # not truncated


def test_sharing_takes_one_w_of_each_type_or_one_for_all() -> None:
    with torch.device("meta"):
        assert build_model({"base": "capsnet-r3", "share": "type"}).digit_caps.weight.shape == (32, 10, 8, 16)
        assert build_model({"base": "capsnet-r3", "share": "all"}).digit_caps.weight.shape == (1, 10, 8, 16)


def test_shared_votes_equal_separate_ones_with_equal_weights() -> None:
    u = torch.rand(2, 72, 8)
    shared, separate = small(share="type").digit_caps, small().digit_caps
    with torch.no_grad():
        separate.weight.copy_(shared.weight.repeat_interleave(36, 0))
    torch.testing.assert_close(separate.votes(u), shared.votes(u))


def test_two_digit_models_take_two_digits() -> None:
    for variant in ("two-digit-average-mlp", "two-digit-kmeans"):
        model = build_model({"base": variant, "channels": [4, 4, 8, 8]})
        for size in ((28, 28), (56, 28), (28, 56)):
            assert model(torch.rand(2, 1, *size)).scores.shape == (2, 10)


def test_dropout_is_off_in_evaluation() -> None:
    model = build_model({"base": "cnn", "channels": [4, 4, 4]}).eval()
    images = torch.rand(2, 1, 28, 28)
    assert torch.equal(model(images).scores, model(images).scores)
    model.train()
    assert not torch.equal(model(images).scores, model(images).scores)


def test_a_size_a_model_cannot_take_is_a_sentence() -> None:
    with pytest.raises(PlanError, match="at least 17x17 pixels, not 16x16"):
        build_model("capsnet-r3", 16)
    build_model("capsnet-r3", 17)
    with pytest.raises(PlanError, match="did you mean 'capsnet-r3"):
        build_model("capsnet-r33")
    with pytest.raises(PlanError, match="did you mean 'squash'"):
        build_model({"base": "capsnet-r3", "squah": "half"})


def test_only_convolutions_have_their_channels_innermost() -> None:
    model = channels_last(build_model("capsnet-r3-recon"))
    assert model.conv1.weight.is_contiguous(memory_format=torch.channels_last)
    assert model.primary.weight.is_contiguous(memory_format=torch.channels_last)
    assert model.digit_caps.weight.is_contiguous()  # its kernels read it a matrix at a time
