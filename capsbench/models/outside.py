"""A model from outside the package, `my_file:MyModel`, with what the suite puts around it: checks, and a decoder."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from capsbench.errors import RoutingError, nearest
from capsbench.models.decoder import build_decoder, draw
from capsbench.models.output import Output
from capsbench.plan.outside import OutsideSpec
from capsbench.plan.tasks import CLASSES
from capsbench.routing.resolve import resolve

_ARGUMENTS, _KEYWORDS = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD


class Outside(nn.Module):
    """The user's network `net`, and a decoder beside it if the spec asks for one.

    `net` takes images [B, 1, H, W] float32 in [0, 1] and returns scores [B, K], or scores and poses [B, K, D]. Scores
    are lengths or activations in [0, 1] for the losses `margin` and `spread`, probabilities for `nll`, logits for the
    cross entropies. Its constructor gets the plan's `model_options`, and `image_size` and `width` if it takes them.
    Raises RoutingError where it is not there, or takes no such option.
    """

    def __init__(self, spec: OutsideSpec, image_size: int, folder: Path | None = None) -> None:
        super().__init__()
        self.spec = spec
        self.net = self._built(image_size, folder)
        self.decoder = build_decoder(spec, CLASSES, image_size)

    def forward(self, images: Tensor) -> Output:
        """Scores, and poses where the network returns them. Raises RoutingError for other shapes."""
        answer = self.net(images)
        scores, poses = (answer, None) if isinstance(answer, Tensor) else self._parts(answer)
        expected = {"scores": [len(images), CLASSES]}
        if self.decoder is not None:
            expected["poses"] = [len(images), CLASSES, self.spec.dim]
        for word, shape in expected.items():
            value = scores if word == "scores" else poses
            if not isinstance(value, Tensor) or list(value.shape) != shape:
                found = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
                why = f", which reconstruction: {self.spec.reconstruction} draws from" if word == "poses" else ""
                raise RoutingError(f"{self.name}: it must return {word} {shape}{why}, not {found}.")
        return Output(scores, poses)

    def reconstruct(self, poses: Tensor, classes: Tensor) -> Tensor:
        """What the decoder draws from poses [B, 10, D] for `classes` [B] int64: [B, H, W] float32 in (0, 1)."""
        return draw(self.decoder, poses, classes)

    @property
    def name(self) -> str:
        """As errors name it."""
        return f"model {self.spec.model!r}"

    def _parts(self, answer: Any) -> tuple[Any, Any]:
        if isinstance(answer, tuple | list) and len(answer) >= 2:
            return answer[0], answer[1]
        raise RoutingError(
            f"{self.name}: it must return scores [B, {CLASSES}], or scores and poses [B, {CLASSES}, D], "
            f"not {type(answer).__name__}."
        )

    def _built(self, image_size: int, folder: Path | None) -> nn.Module:
        try:
            build = resolve(self.spec.model, folder)
        except RoutingError as error:  # whose words are a routing's
            raise RoutingError(str(error).replace(f"routing {self.spec.model!r}", self.name, 1)) from error
        takes = inspect.signature(build).parameters
        anything = any(parameter.kind is _KEYWORDS for parameter in takes.values())
        for option in self.spec.model_options:
            if option not in takes and not anything:
                options = [word for word in takes if word not in ("image_size", "width")]
                hint = nearest(option, options) if options else "; it takes none."
                raise RoutingError(f"{self.name}: model_options: it takes no option {option!r}{hint}")
        if self.spec.width != 1 and "width" not in takes:
            raise RoutingError(
                f"{self.name}: it takes no `width`, so the plan's width {self.spec.width:g} would change nothing; let "
                "its constructor take one, or say 1 for this variant under the task's `widths`."
            )
        own = {"image_size": image_size, "width": self.spec.width}
        given = {word: value for word, value in own.items() if word in takes} | self.spec.model_options
        for word, parameter in takes.items():
            always = parameter.default is parameter.empty and parameter.kind not in (_ARGUMENTS, _KEYWORDS)
            if always and word not in given:
                raise RoutingError(f"{self.name}: model_options: its constructor needs {word!r}; say it there.")
        net = build(**given)
        if not isinstance(net, nn.Module):
            raise RoutingError(f"{self.name} must be a torch.nn.Module or return one, not {type(net).__name__}.")
        return net
