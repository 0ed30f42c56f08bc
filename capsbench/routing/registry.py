"""The routing algorithms by name. A new one is a file beside this one and a line here.

Nothing imports this table statically, and it imports no algorithm: a run's digest follows the imports, so a line more
leaves every trained run as it is (see docs/architecture.md). It is read by `capsbench.routing.resolve`.
"""

ALGORITHMS = {
    "dynamic": "capsbench.routing.dynamic:dynamic",
    "leaky": "capsbench.routing.leaky:leaky",
    "uniform": "capsbench.routing.uniform:uniform",
    "learned": "capsbench.routing.learned:learned",
    "replace": "capsbench.routing.replace:replace",
    "kmeans": "capsbench.routing.kmeans:kmeans",
    "optimised": "capsbench.routing.optimised:optimised",
    "scaled-distance": "capsbench.routing.scaled_distance:scaled_distance",
    "em-vector": "capsbench.routing.em_vector:em_vector",
    "self-attention": "capsbench.routing.self_attention:self_attention",
    "inverted-attention": "capsbench.routing.inverted_attention:inverted_attention",
    "self-routing": "capsbench.routing.self_routing:self_routing",
}
