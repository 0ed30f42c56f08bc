"""Every routing once more, in float64 NumPy, straight from the equations, one image and one capsule at a time.

Independent of the package on purpose: nothing here imports capsbench or torch. votes [B, I, J, D]; each function
returns poses [B, J, D], couplings [B, I, J], scores [B, J].
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

Array = np.ndarray


def squash(s: Array, kind: str = "hinton") -> Array:
    n = math.sqrt(sum(float(x) ** 2 for x in s))
    if kind == "none":
        return s
    if n == 0:
        return np.zeros_like(s)
    new_length = {
        "hinton": n**2 / (1 + n**2),
        "half": n**2 / (0.5 + n**2),
        "exp": 1 - math.exp(-n),
        "tanh": math.tanh(n),
        "ratio": n / (1 + n),
    }[kind]
    return s / n * new_length


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max())
    return e / e.sum()


def couplings_of(b: Array, normaliser: str) -> Array:
    """b [I, J] -> c [I, J], for each input over the outputs."""
    c = np.zeros_like(b)
    for i in range(b.shape[0]):
        if normaliser == "softmax":
            c[i] = softmax(b[i])
        elif normaliser == "leaky":
            c[i] = softmax(np.concatenate([[0.0], b[i]]))[1:]
        elif normaliser == "sigmoid":
            c[i] = 1 / (1 + np.exp(-b[i]))
    return c


def per_image(route: Callable[..., tuple[Array, Array, Array]]) -> Callable[..., tuple[Array, Array, Array]]:
    """Lift a routing of one image (u [I, J, D], child [I, d] or None) to a batch."""

    def lifted(votes: Array, children: Array | None = None, **options: object) -> tuple[Array, Array, Array]:
        images = range(votes.shape[0])
        results = [route(votes[n], None if children is None else children[n], **options) for n in images]
        poses, couplings, scores = (np.stack(part) for part in zip(*results, strict=True))
        return poses, couplings, scores

    return lifted


def lengths(v: Array) -> Array:
    return np.sqrt((v**2).sum(-1))


def weighted(c: Array, u: Array, bias: Array | None) -> Array:
    """s_j = sum_i c_ij u_ij + bias_j."""
    inputs, outputs, dim = u.shape
    s = np.zeros((outputs, dim))
    for j in range(outputs):
        for i in range(inputs):
            s[j] += c[i, j] * u[i, j]
        if bias is not None:
            s[j] += bias[j]
    return s


def squash_all(s: Array, kind: str) -> Array:
    return np.stack([squash(row, kind) for row in s])


@per_image
def dynamic(u, child, iterations=3, *, squash="hinton", normaliser="softmax", bias=None, prior=None, accumulate=True):
    prior = np.zeros(u.shape[:2]) if prior is None else prior
    b = prior.copy()
    for _ in range(iterations):
        c = couplings_of(b, normaliser)
        s = weighted(c, u, bias)
        v = squash_all(s, squash)
        agreement = np.einsum("ijd,jd->ij", u, v)
        b = b + agreement if accumulate else prior + agreement
    return v, c, lengths(v)


def leaky(votes, children=None, **options):
    return dynamic(votes, normaliser="leaky", **options)


def replace(votes, children=None, **options):
    return dynamic(votes, accumulate=False, **options)


@per_image
def uniform(u, child, iterations=1, *, squash="hinton", bias=None):
    c = np.full(u.shape[:2], 1 / u.shape[1])
    v = squash_all(weighted(c, u, bias), squash)
    return v, c, lengths(v)


@per_image
def learned(u, child, iterations=1, *, prior=None, squash="hinton", normaliser="softmax", bias=None):
    c = couplings_of(np.zeros(u.shape[:2]) if prior is None else prior, normaliser)
    v = squash_all(weighted(c, u, bias), squash)
    return v, c, lengths(v)


@per_image
def optimised(u, child, iterations=3, *, alpha=1.0, squash="half", normaliser="softmax", bias=None, prior=None):
    prior = np.zeros(u.shape[:2]) if prior is None else prior
    b = prior.copy()
    for _ in range(iterations):
        c = couplings_of(b, normaliser)
        s = weighted(c, u, bias)
        b = prior + np.einsum("ijd,jd->ij", u, s / lengths(s)[:, None]) / alpha
    v = squash_all(s, squash)
    return v, c, lengths(v)


def kmeans(votes, children=None, **options):
    return optimised(votes, **options)


@per_image
def scaled_distance(u, child, iterations=3, *, squash="hinton", bias=None):
    inputs, outputs, _ = u.shape
    u = u.copy()
    if child is not None:
        for i in range(inputs):
            for j in range(outputs):
                n = lengths(u[i, j])
                u[i, j] = u[i, j] / n * min(n, lengths(child[i]))
    b = np.zeros((inputs, outputs))
    for _ in range(iterations):
        c = couplings_of(b, "softmax")
        v = squash_all(weighted(c, u, bias), squash)
        d = np.array([[lengths(v[j] - u[i, j]) for j in range(outputs)] for i in range(inputs)])
        d_o = d.mean()
        d_p = 0.5 * d_o
        t = (math.log(0.9 * (outputs - 1)) - math.log(1 - 0.9)) / (d_p - d_o)
        b = t * d
    return v, c, lengths(v)


def em(u, a_in, iterations, beta_a=None, beta_u=None):
    """Hinton 2018 procedure 1 on one image: mu [J, H], a [J], R [I, J]. Plain, not in log space."""
    inputs, outputs, dim = u.shape
    beta_a = np.zeros(outputs) if beta_a is None else beta_a
    beta_u = np.zeros(outputs) if beta_u is None else beta_u
    r = np.full((inputs, outputs), 1 / outputs)
    for t in range(iterations):
        if t > 0:
            log_p = np.zeros((inputs, outputs))
            for i in range(inputs):
                for j in range(outputs):
                    for h in range(dim):
                        log_p[i, j] -= (u[i, j, h] - mu[j, h]) ** 2 / (2 * var[j, h])  # noqa: F821
                        log_p[i, j] -= 0.5 * math.log(2 * math.pi * var[j, h])  # noqa: F821
                r[i] = softmax(np.log(a) + log_p[i])  # noqa: F821
        mu, var, a = np.zeros((outputs, dim)), np.zeros((outputs, dim)), np.zeros(outputs)
        for j in range(outputs):
            weight = r[:, j] * a_in
            total = weight.sum()
            cost = 0.0
            for h in range(dim):
                mu[j, h] = (weight * u[:, j, h]).sum() / total
                var[j, h] = (weight * (u[:, j, h] - mu[j, h]) ** 2).sum() / total + 1e-9
                cost += (beta_u[j] + 0.5 * math.log(var[j, h])) * total * 100 / inputs
            a[j] = 1 / (1 + math.exp(-0.01 * (1 - 0.95 ** (t + 1)) * (beta_a[j] - cost)))
    return mu, a, r


@per_image
def em_vector(u, child, iterations=3, *, beta_a=None, beta_u=None):
    mu, a, r = em(u, lengths(child), iterations, beta_a, beta_u)
    return a[:, None] * mu / lengths(mu)[:, None], r, a


@per_image
def em_matrix(u, child, iterations=3, *, beta_a=None, beta_u=None):
    mu, a, r = em(u, child, iterations, beta_a, beta_u)
    return mu, r, a


@per_image
def self_attention(u, child, iterations=1, *, prior=None, average=False, squash="exp"):
    inputs, outputs, dim = u.shape
    b = np.zeros((inputs, outputs))
    for i in range(inputs):
        for j in range(outputs):
            for k in range(inputs):
                b[i, j] += u[i, j] @ u[k, j] / math.sqrt(dim) / (inputs if average else 1)
    c = couplings_of(b, "softmax") + (0 if prior is None else prior)
    v = squash_all(weighted(c, u, None), squash)
    return v, c, lengths(v)


def layer_norm(x: Array, gain: Array | None, shift: Array | None) -> Array:
    y = (x - x.mean()) / math.sqrt(x.var() + 1e-5)
    return y * (1 if gain is None else gain) + (0 if shift is None else shift)


@per_image
def inverted_attention(u, child, iterations=2, *, gain=None, shift=None, head=None):
    inputs, outputs, dim = u.shape
    c = np.full((inputs, outputs), 1 / outputs)
    v = np.stack([layer_norm(u[:, j].sum(0) / outputs, gain, shift) for j in range(outputs)])
    for _ in range(iterations - 1):
        c = couplings_of(np.einsum("ijd,jd->ij", u, v) / math.sqrt(dim), "softmax")
        v = np.stack([layer_norm(row, gain, shift) for row in weighted(c, u, None)])
    return v, c, lengths(v) if head is None else v @ head


@per_image
def self_routing(u, child, iterations=1, *, gate_weight=None, gate_bias=None):
    inputs, outputs, _ = u.shape
    b = np.zeros((inputs, outputs))
    for i in range(inputs):
        for j in range(outputs):
            b[i, j] = 0 if gate_weight is None else gate_weight[i, j] @ child[i]
            b[i, j] += 0 if gate_bias is None else gate_bias[i, j]
    c = couplings_of(b, "softmax")
    a = lengths(child)
    poses = np.stack([(c[:, j] * a) @ u[:, j] / (c[:, j] * a).sum() for j in range(outputs)])
    return poses, c, (c * a[:, None]).sum(0) / a.sum()


REFERENCE = {
    "dynamic": dynamic,
    "leaky": leaky,
    "uniform": uniform,
    "learned": learned,
    "replace": replace,
    "kmeans": kmeans,
    "optimised": optimised,
    "scaled-distance": scaled_distance,
    "em-vector": em_vector,
    "self-attention": self_attention,
    "inverted-attention": inverted_attention,
    "self-routing": self_routing,
}
