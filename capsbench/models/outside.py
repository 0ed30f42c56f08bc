"""A model from outside the package, `my_file:MyModel`, with what the suite puts around it: checks, and a decoder."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from capsbench.errors import RoutingError, nearest
from capsbench.models.decoder import build_decoder, draw
from capsbench.models.output import Output
from capsbench.plan.custom import forget_others
from capsbench.plan.outside import OutsideSpec
from capsbench.plan.tasks import CLASSES
from capsbench.routing.resolve import _importable, resolve

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
        self._check("scores", scores, [len(images), CLASSES], "")
        drawn = self.decoder is not None
        if poses is not None or drawn:
            dim = self.spec.dim if drawn or not isinstance(poses, Tensor) else poses.shape[-1]
            why = f", which reconstruction: {self.spec.reconstruction} draws from" if drawn else ""
            self._check("poses", poses, [len(images), CLASSES, dim], why)
        return Output(scores, poses)

    def reconstruct(self, poses: Tensor, classes: Tensor) -> Tensor:
        """What the decoder draws from poses [B, 10, D] for `classes` [B] int64: [B, H, W] float32 in (0, 1)."""
        return draw(self.decoder, poses, classes)

    @property
    def name(self) -> str:
        """As errors name it."""
        return f"model {self.spec.model!r}"

    def _check(self, word: str, value: Any, shape: list[int], why: str) -> None:
        if not isinstance(value, Tensor) or list(value.shape) != shape:
            found = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise RoutingError(f"{self.name}: it must return {word} {shape}{why}, not {found}.")

    def _parts(self, answer: Any) -> tuple[Any, Any]:
        if isinstance(answer, Output) or (isinstance(answer, tuple | list) and len(answer) == 2):
            return answer[0], answer[1]
        raise RoutingError(
            f"{self.name}: it must return scores [B, {CLASSES}], or scores and poses [B, {CLASSES}, D], "
            f"not {type(answer).__name__}."
        )

    def _built(self, image_size: int, folder: Path | None) -> nn.Module:
        forget_others(self.spec.model, folder)
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
        if said := sorted(own.keys() & self.spec.model_options):
            raise RoutingError(f"{self.name}: model_options: {said[0]} is the plan's; leave it out.")
        given = {word: value for word, value in own.items() if word in takes} | self.spec.model_options
        for word, parameter in takes.items():
            always = parameter.default is parameter.empty and parameter.kind not in (_ARGUMENTS, _KEYWORDS)
            if always and word not in given:
                raise RoutingError(f"{self.name}: model_options: its constructor needs {word!r}; say it there.")
        with _importable(self.spec.model, self.spec.model.partition(":")[0], folder):  # it may import there
            net = build(**given)
        if not isinstance(net, nn.Module):
            raise RoutingError(f"{self.name} must be a torch.nn.Module or return one, not {type(net).__name__}.")
        return net
