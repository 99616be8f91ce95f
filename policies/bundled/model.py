"""The bundled vision-language-action model: small, but built as OpenVLA is.

Each camera has a convolutional encoder (96x96 pixels to 6x6 tokens), a projector brings the tokens to the decoder's width, the decoder is
transformers' Llama. Pictures, instruction and robot state form a prefix that attends to itself in both directions; seven action tokens follow
causally. The last `n_action_bins` ids of the vocabulary stand for actions.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from transformers import GenerationMixin, LlamaConfig, LlamaModel, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

HINTS = 13
"""Numbers the hint head gives: object and target in the fixed frame (3 + 3), both relative to the tool (3 + 3), held (1)."""

_CHANNELS = (32, 64, 128, 192)
_WAVES = 6


class TinyVLAConfig(PreTrainedConfig):  # type: ignore[no-untyped-call]
    """Shape of the model, and OpenVLA's facts about actions (`norm_stats`, `n_action_bins`).

    `state` says how the robot's pose becomes words of the prompt: `names`, `low`, `high` (one each) and `bins`.
    """

    model_type = "vla_monitor_tiny"
    sub_configs: ClassVar = {"text_config": LlamaConfig}

    def __init__(
        self,
        text_config: LlamaConfig | dict[str, Any] | None = None,
        norm_stats: dict[str, Any] | None = None,
        n_action_bins: int = 256,
        action_dim: int = 7,
        cameras: tuple[str, ...] = ("front", "wrist"),
        image_size: int = 96,
        image_token_id: int = 1,
        prompt_end_id: int = 2,
        state_start_id: int = 0,
        state: dict[str, Any] | None = None,
        prompt_template: str = "",
        hint_layer: int = 2,
        policy_name: str = "bundled",
        policy_version: str = "1",
        **kwargs: Any,
    ) -> None:
        if isinstance(text_config, dict):
            text_config = LlamaConfig(**text_config)
        self.text_config = text_config or LlamaConfig(
            vocab_size=1024, hidden_size=192, intermediate_size=512, num_hidden_layers=4, num_attention_heads=6
        )
        self.norm_stats = norm_stats or {}
        self.n_action_bins = n_action_bins
        self.action_dim = action_dim
        self.cameras = list(cameras)
        self.image_size = image_size
        self.image_token_id = image_token_id
        self.prompt_end_id = prompt_end_id
        self.state_start_id = state_start_id
        self.state = state or {"names": [], "low": [], "high": [], "bins": 256}
        self.prompt_template = prompt_template
        self.hint_layer = hint_layer
        self.policy_name = policy_name
        self.policy_version = policy_version
        super().__init__(**kwargs)

    @property
    def image_tokens(self) -> int:
        """Tokens of all cameras together."""
        return len(self.cameras) * (self.image_size // 16) ** 2


class _Block(nn.Module):
    """Two convolutions with a way around them; between them the instruction scales and shifts each channel (FiLM)."""

    def __init__(self, channels: int, context: int) -> None:
        super().__init__()
        self.body = nn.Sequential(*_convolution(channels, channels, 3, 1), *_convolution(channels, channels, 3, 1)[:2])
        self.film = nn.Linear(context, 2 * channels)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        scale, shift = self.film(context)[:, :, None, None].chunk(2, 1)
        inner = torch.relu(self.body[1](self.body[0](x)) * (1 + scale) + shift)
        return torch.relu(x + self.body[4](self.body[3](inner)))


def _convolution(inputs: int, outputs: int, kernel: int, stride: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]


class InstructionEncoder(nn.Module):
    """(B, T) prompt ids to (B, width): the sum of the words' vectors, each multiplied by its place's vector, then two layers.

    Without it the model learned to act long before it learned to listen; OpenVLA-OFT conditions its vision in the same way.
    """

    def __init__(self, config: TinyVLAConfig) -> None:
        super().__init__()
        width = config.text_config.hidden_size
        self.image_token_id, self.pad_token_id = config.image_token_id, config.pad_token_id
        self.words = nn.Embedding(config.state_start_id, width)
        self.places = nn.Embedding(config.text_config.max_position_embeddings, width)
        self.layers = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width), nn.GELU())

    def forward(self, ids: Tensor, position_ids: Tensor) -> Tensor:
        """Context of each row."""
        spoken = (ids < self.words.num_embeddings) & (ids != self.image_token_id) & (ids != self.pad_token_id)
        vectors = self.words(ids.clamp(max=self.words.num_embeddings - 1)) * self.places(position_ids)
        context: Tensor = self.layers((vectors * spoken.unsqueeze(-1)).sum(1))
        return context


class CameraEncoder(nn.Module):
    """(B, 3, S, S) in 0..1 to (B, (S/16)^2, 192); two channels with the pixel's place are added to the picture."""

    def __init__(self, context: int) -> None:
        super().__init__()
        a, b, c, d = _CHANNELS
        layers = [
            *_convolution(5, a, 5, 2),
            *_convolution(a, b, 3, 2),
            _Block(b, context),
            *_convolution(b, c, 3, 2),
            _Block(c, context),
            *_convolution(c, d, 3, 2),
            _Block(d, context),
        ]
        self.layers = nn.ModuleList(layers)

    def forward(self, pixels: Tensor, context: Tensor) -> Tensor:
        """Tokens of one camera."""
        size = pixels.shape[-1]
        line = torch.linspace(-1, 1, size, device=pixels.device, dtype=pixels.dtype).expand(len(pixels), 1, size, size)
        x = torch.cat([pixels * 2 - 1, line, line.transpose(-1, -2)], 1).contiguous(memory_format=torch.channels_last)
        for layer in self.layers:
            x = layer(x, context) if isinstance(layer, _Block) else layer(x)
        return x.flatten(2).transpose(1, 2)


class TinyVLAForActionPrediction(PreTrainedModel, GenerationMixin):
    """`generate` gives action tokens; `forward` with whole sequences serves training."""

    config_class = TinyVLAConfig
    base_model_prefix = ""
    main_input_name = "input_ids"
    _supports_sdpa = True

    def __init__(self, config: TinyVLAConfig) -> None:
        super().__init__(config)
        width, states = config.text_config.hidden_size, len(config.state["names"])
        self.instruction = InstructionEncoder(config)
        self.vision = nn.ModuleList([CameraEncoder(width) for _ in config.cameras])
        self.projector = nn.Sequential(nn.Linear(_CHANNELS[-1], width), nn.GELU(), nn.Linear(width, width))
        self.language_model = LlamaModel(config.text_config)
        self.places = nn.Embedding(config.text_config.max_position_embeddings, width)
        self.value_weight = nn.Parameter(torch.empty(states + 1, 2 * _WAVES + 2, width))
        self.lm_head = nn.Linear(width, config.text_config.vocab_size, bias=False)
        self.hints = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, HINTS))
        self.post_init()  # type: ignore[no-untyped-call]

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)  # type: ignore[no-untyped-call]
        if module is self:
            nn.init.normal_(self.value_weight, std=0.05)

    @torch.no_grad()
    def start_listening(self) -> None:
        """First values of the instruction's way into the pictures: words far apart, no effect yet (transformers' own start is too small for it)."""
        self.instruction.words.weight.normal_()
        self.instruction.places.weight.normal_(1.0, 0.5)
        for layer in self.instruction.layers:
            if isinstance(layer, nn.Linear):
                layer.weight.normal_(0.0, layer.in_features**-0.5)
        for module in self.modules():
            if isinstance(module, _Block):
                module.film.weight.zero_()

    def get_input_embeddings(self) -> nn.Module:
        """The table of word vectors."""
        return cast(nn.Module, self.language_model.embed_tokens)

    def get_output_embeddings(self) -> nn.Module:
        """The head."""
        return cast(nn.Module, self.lm_head)

    def forward(
        self,
        input_ids: Tensor,
        pixel_values: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        cache: Any = None,
        use_cache: bool | None = None,
        logits_to_keep: int = 0,
        return_hints: bool = False,
        **_: Any,
    ) -> CausalLMOutputWithPast | tuple[Tensor, Tensor]:
        """Logits (B, logits_to_keep or T, V).

        Args:
            input_ids: (B, T); the whole prompt, or what follows a cached one.
            pixel_values: (B, cameras, 3, S, S) in 0..1; needed with the prompt.
            attention_mask: (B, T) of 0 and 1, or a ready (B, 1, T, kv) mask.
            position_ids: (B, T); made from the ids if absent.
            cache: transformers' cache of keys and values.
            use_cache: whether to fill the cache.
            logits_to_keep: how many of the last positions to give logits for; 0 for all.
            return_hints: give (logits, hints (B, HINTS)) instead; for training.
        """
        if position_ids is None or attention_mask is None or attention_mask.ndim == 2:
            position_ids, attention_mask = self._layout(input_ids, attention_mask)
        embeds = self._embed(input_ids, position_ids)
        if pixel_values is not None:
            context = self.instruction(input_ids, position_ids)
            features = torch.cat([encoder(pixel_values[:, i], context) for i, encoder in enumerate(self.vision)], 1)
            is_image = (input_ids == self.config.image_token_id).unsqueeze(-1)
            embeds = embeds + torch.zeros_like(embeds).masked_scatter(is_image, self.projector(features).to(embeds.dtype))
        out = self.language_model(
            inputs_embeds=embeds,
            attention_mask=attention_mask,
            position_ids=position_ids,
            cache=cache,
            use_cache=use_cache,
            output_hidden_states=return_hints,
        )
        logits = self.lm_head(out.last_hidden_state[:, -logits_to_keep:])
        if return_hints:
            ends = (input_ids == self.config.prompt_end_id).int().argmax(1)
            middle = out.hidden_states[self.config.hint_layer]
            return logits, self.hints(middle[torch.arange(len(ends)), ends])
        return CausalLMOutputWithPast(logits=logits, cache=out.cache)

    def prepare_inputs_for_generation(self, input_ids: Tensor, next_sequence_length: int | None = None, **kwargs: Any) -> dict[str, Any]:
        """Cut to the new tokens; positions and mask come from the whole sequence."""
        position_ids, mask = self._layout(input_ids, kwargs.get("attention_mask"))
        new = next_sequence_length or input_ids.shape[1]
        inputs = {
            "input_ids": input_ids[:, -new:],
            "position_ids": position_ids[:, -new:],
            "attention_mask": mask[:, :, -new:],
            "cache": kwargs.get("cache"),
        }
        if kwargs.get("is_first_iteration"):
            inputs["pixel_values"] = kwargs.get("pixel_values")
        return inputs | {"use_cache": kwargs.get("use_cache"), "logits_to_keep": 1}

    def _layout(self, ids: Tensor, given: Tensor | None) -> tuple[Tensor, Tensor]:
        """Positions (B, T) and mask (B, 1, T, T), 0 where a row may look and very low elsewhere: the prefix both ways, the actions backwards.

        Action tokens count from the last places, so their places do not depend on the length of the instruction.
        """
        real = torch.ones_like(ids) if given is None else given.to(ids.dtype)
        is_end = (ids == self.config.prompt_end_id).int()
        is_action = is_end.cumsum(1) - is_end > 0
        first = self.config.text_config.max_position_embeddings - self.config.action_dim
        positions = torch.where(is_action, first + is_action.cumsum(1) - 1, (real.cumsum(1) - 1).clamp(min=0))
        steps = torch.arange(ids.shape[1], device=ids.device)
        mask = (steps[:, None] >= steps) | ~is_action[:, None, None, :]
        seen = mask & real.bool()[:, None, None, :] | torch.eye(ids.shape[1], dtype=torch.bool, device=ids.device)
        hidden = torch.zeros(seen.shape, dtype=self.dtype, device=ids.device).masked_fill(~seen, torch.finfo(self.dtype).min)
        return positions.clamp(max=first + self.config.action_dim - 1), hidden

    def _embed(self, ids: Tensor, position_ids: Tensor) -> Tensor:
        """Word vectors plus place vectors; ids that stand for numbers (state, actions) add waves of the number's value."""
        config, bins = self.config, self.config.state["bins"]
        embeds: Tensor = self.language_model.embed_tokens(ids) + self.places(position_ids)
        states = len(config.state["names"])
        action_start = config.text_config.vocab_size - config.n_action_bins
        is_action, offset = ids >= action_start, ids - config.state_start_id
        is_value = is_action | (offset >= 0) & (offset < states * bins)
        kind = torch.where(is_action, states, offset.div(bins, rounding_mode="floor"))[is_value]
        value = torch.where(is_action, (ids - action_start) / config.n_action_bins, offset % bins / bins)[is_value]
        waves = value[:, None] * math.pi * 2.0 ** torch.arange(_WAVES, device=ids.device)
        features = torch.cat([torch.ones_like(value)[:, None], value[:, None] * 2 - 1, waves.sin(), waves.cos()], 1)
        added = torch.einsum("nf,nfw->nw", features, self.value_weight[kind])
        return embeds + torch.zeros_like(embeds).masked_scatter(is_value.unsqueeze(-1), added.to(embeds.dtype))
