"""Training of the bundled model on stored frames.

    python -m policies.bundled.train --work build/bundled --steps 4500 --out policies/bundled/weights

Two processes with one thread each (OpenMP threads wait for each other on shared cores), gradients averaged, bfloat16 arithmetic with float32
weights. The loss is the cross-entropy of the seven action tokens, against a bell over neighbouring bins that narrows as training goes on, plus the
error of a hint: from the end of the prompt, in the middle of the decoder, a small head tells where the object and the target are. The hint
teaches the model to look; it is not used when acting.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.multiprocessing.spawn import start_processes
from torch.nn.functional import log_softmax, smooth_l1_loss

from policies.base import bin_index, progress
from policies.bundled.build import build, load_checkpoint, norm_stats, save_checkpoint
from policies.bundled.dataset import WORK, Frames, count, load
from policies.bundled.model import TinyVLAConfig, TinyVLAForActionPrediction
from policies.bundled.processor import TinyVLAProcessor
from policies.hf_tokens import ActionCoder

HINT_SCALE = 0.1
"""m that count as 1 in the hint's loss."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How to train; `batch` counts all processes together, `sigma` is the bell's width in bins at start and end, `settle` the
    number of batches for the last measurement of the normalisation layers.
    """

    steps: int = 4500
    batch: int = 64
    rate: float = 1e-3
    warmup: int = 200
    weight_decay: float = 0.05
    sigma: tuple[float, float] = (5.0, 1.0)
    hint_weight: float = 1.0
    average: float = 0.998
    settle: int = 40
    seed: int = 0
    processes: int = 2


@dataclass(slots=True)
class Batches:
    """Frames made ready for the model: `ids` (N, T) prompts, `bins` (N, 7) action ids, `hints` (N, 13) with NaN where unknown.

    `edges` parts the rows into kinds (demonstrations, starts, corrections); each kind gives an equal share of a batch.
    """

    frames: Frames
    ids: Tensor
    mask: Tensor
    bins: Tensor
    hints: Tensor
    edges: tuple[int, ...]

    def draw(self, rng: np.random.Generator, count: int) -> tuple[Tensor, ...]:
        """A random batch: ids, mask, pixels, bins, hints."""
        kinds = len(self.edges) - 1
        counts = [count // kinds + (i < count % kinds) for i in range(kinds)]
        return self.take(np.concatenate([rng.integers(self.edges[i], self.edges[i + 1], counts[i]) for i in range(kinds)]))

    def take(self, rows: np.ndarray) -> tuple[Tensor, ...]:
        """The named rows: ids, mask, pixels, bins, hints."""
        pixels = torch.from_numpy(self.frames.images[rows]).permute(0, 1, 4, 2, 3).float() / 255
        return self.ids[rows], self.mask[rows], pixels, self.bins[rows], self.hints[rows]


def prepare(frames: Frames, config: TinyVLAConfig, processor: TinyVLAProcessor, edges: tuple[int, ...] = ()) -> Batches:
    """Prompts, action ids and hints of all frames."""
    names, low, high, bins = (config.state[key] for key in ("names", "low", "high", "bins"))
    images = "<image>" * config.image_tokens
    prompts = []
    for instruction, row in zip(frames.instruction, frames.state, strict=True):
        words = " ".join(f"{n}{bin_index(float(v), a, b, bins)}" for n, v, a, b in zip(names, row, low, high, strict=True))
        prompts.append(images + config.prompt_template.format(instruction=instruction, state=words))
    encoded = processor.tokenizer(prompts, padding=True, return_tensors="pt")
    tool, truth = frames.state[:, :3], frames.goal
    centre = np.array([0.5, 0.0, 0.05], "f4")
    hints = np.concatenate([truth[:, :3] - centre, truth[:, 3:6] - centre, truth[:, :3] - tool, truth[:, 3:6] - tool, truth[:, 6:] * HINT_SCALE], 1)
    coder = ActionCoder.from_config(config, None)
    targets = torch.from_numpy(coder.encode(frames.action))
    wanted = torch.from_numpy(hints / HINT_SCALE).float()
    return Batches(frames, encoded["input_ids"], encoded["attention_mask"], targets, wanted, edges or (0, len(frames)))


def loss_of(model: TinyVLAForActionPrediction, batch: tuple[Tensor, ...], sigma: float, hint_weight: float) -> tuple[Tensor, dict[str, float]]:
    """Loss, and its parts: token cross-entropy (nats), share of right tokens within two bins, hint error (cm)."""
    ids, mask, pixels, bins, hints = batch
    config = model.config
    whole = torch.cat([ids, bins[:, :-1]], 1)
    seen = torch.cat([mask, torch.ones_like(bins[:, :-1])], 1)
    with torch.autocast("cpu", torch.bfloat16):
        logits, guess = model(whole, pixels, seen, logits_to_keep=config.action_dim, return_hints=True)
    start = config.text_config.vocab_size - config.n_action_bins
    scores = log_softmax(logits.float(), -1)[..., start:]
    distance = torch.arange(config.n_action_bins) - (bins - start)[..., None]
    bell = torch.softmax(-0.5 * (distance / sigma) ** 2, -1)
    token_loss = -(bell * scores).sum(-1).mean()
    known = ~hints.isnan()
    error = (guess.float() - hints.nan_to_num())[known]
    loss = token_loss + hint_weight * smooth_l1_loss(error, torch.zeros_like(error), beta=0.1)
    with torch.no_grad():
        near = ((scores.argmax(-1) - (bins - start)).abs() <= 2).float().mean()
        object_error = (guess[:, 6:9].float() - hints[:, 6:9]).norm(dim=1).mean() * HINT_SCALE * 100
        plain = -scores.gather(-1, (bins - start)[..., None]).mean()
    return loss, {"loss": loss.item(), "token_nats": float(plain), "near": float(near), "hint_cm": float(object_error)}


def jitter(pixels: Tensor, generator: torch.Generator) -> Tensor:
    """Mild change of brightness, contrast and noise, each picture its own."""
    shape = (*pixels.shape[:2], 1, 1, 1)
    gain = 0.85 + 0.3 * torch.rand(shape, generator=generator)
    shift = 0.1 * (torch.rand(shape, generator=generator) - 0.5)
    noise = 0.02 * torch.randn(pixels.shape, generator=generator)
    return (pixels * gain + shift + noise).clamp(0, 1)


def train(model: TinyVLAForActionPrediction, data: Batches, plan: Plan, rank: int = 0) -> Iterator[dict[str, float]]:
    """Train in place, one dictionary a step; at the end the model holds the running average of its weights."""
    rng = np.random.default_rng([plan.seed, rank])
    generator = torch.Generator().manual_seed(plan.seed * 100 + rank)
    decayed = [p for p in model.parameters() if p.ndim >= 2]
    plain = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": decayed, "weight_decay": plan.weight_decay}, {"params": plain, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, lr=plan.rate, betas=(0.9, 0.98))
    parameters = list(model.parameters())
    average = [p.detach().clone() for p in parameters]
    model.language_model.config._attn_implementation = "eager"
    model.train()
    for step in range(plan.steps):
        share = step / plan.steps
        rate = plan.rate * min((step + 1) / plan.warmup, 0.02 + 0.98 * 0.5 * (1 + float(np.cos(np.pi * share))))
        for group in optimiser.param_groups:
            group["lr"] = rate
        sigma = plan.sigma[0] * (plan.sigma[1] / plan.sigma[0]) ** min(1.0, share / 0.7)
        ids, mask, pixels, bins, hints = data.draw(rng, plan.batch // plan.processes)
        loss, parts = loss_of(model, (ids, mask, jitter(pixels, generator), bins, hints), sigma, plan.hint_weight)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        _share_gradients(parameters, plan.processes)
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        decay = min(plan.average, (step + 1) / (step + 10))
        torch._foreach_lerp_(average, [p.detach() for p in parameters], 1 - decay)
        yield parts | {"step": step, "rate": rate, "sigma": sigma}
    with torch.no_grad():
        for parameter, mean in zip(parameters, average, strict=True):
            parameter.copy_(mean)
    _settle_statistics(model, data, rng, plan.settle)


def _share_gradients(parameters: list[torch.nn.Parameter], processes: int) -> None:
    if processes == 1:
        return
    gradients = [p.grad for p in parameters if p.grad is not None]
    flat = torch.cat([g.flatten() for g in gradients])
    dist.all_reduce(flat)
    for gradient, part in zip(gradients, torch.split(flat / processes, [g.numel() for g in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))


@torch.no_grad()
def _settle_statistics(model: TinyVLAForActionPrediction, data: Batches, rng: np.random.Generator, batches: int) -> None:
    """Measure the normalisation layers' statistics anew, for the averaged weights."""
    layers = [m for m in model.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None
    for _ in range(batches):
        ids, mask, pixels, *_ = data.draw(rng, 32)
        model(ids, pixels, mask, logits_to_keep=1)
    for layer in layers:
        layer.momentum = 0.1
    model.train(False)


@torch.no_grad()
def validate(model: TinyVLAForActionPrediction, data: Batches, batches: int = 20) -> dict[str, float]:
    """Mean parts of the loss on frames of episodes that were not trained on."""
    model.train(False)
    rng = np.random.default_rng(0)
    rows = [loss_of(model, data.draw(rng, 64), 1.0, 1.0)[1] for _ in range(batches)]
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


def _edges(kinds: list[list[Path]]) -> tuple[int, ...]:
    """Where each kind begins, and the end."""
    counts = [sum(count(path) for path in paths) for paths in kinds]
    return (0, *(int(n) for n in np.cumsum(counts)))


def _work(rank: int, plan: Plan, work: Path, start: Path | None, out: Path) -> None:
    torch.set_num_threads(1)
    if plan.processes > 1:
        dist.init_process_group("gloo", init_method=f"file://{(work / 'rendezvous').absolute()}", rank=rank, world_size=plan.processes)
    kinds = ("demonstrations", "starts", "corrections")
    shards = {kind: sorted((work / kind).glob("*.npz")) for kind in kinds if kind != "corrections" or (work / kind).is_dir()}
    held_out = shards["demonstrations"].pop() if shards["demonstrations"] else work
    for kind, found in shards.items():
        if len(found) < plan.processes:
            raise SystemExit(f"{work / kind} has too few shards: run policies.bundled.demonstrations first")
    mine = [path for found in shards.values() for path in found[rank :: plan.processes]]
    frames, edges = load(mine), _edges([found[rank :: plan.processes] for found in shards.values()])
    torch.manual_seed(plan.seed)
    if start is None:
        first = load(shards["demonstrations"][:10])
        model, processor = build(" ".join(np.unique(first.instruction)).split(), norm_stats(first.action))
    else:
        model, processor = load_checkpoint(start)
    config = cast(TinyVLAConfig, model.config)
    data = prepare(frames, config, processor, edges)
    begun = time.time()
    log = (work / "train.jsonl").open("a") if rank == 0 else None
    steps = train(model, data, plan, rank)
    for parts in progress(steps, plan.steps, "training") if rank == 0 else steps:
        if log is not None and parts["step"] % 50 == 0:
            row = {name: round(value, 5) for name, value in parts.items()} | {"seconds": round(time.time() - begun)}
            log.write(json.dumps(row) + "\n")
            log.flush()
    if log is None:
        return
    result = validate(model, prepare(load([held_out]), config, processor))
    save_checkpoint(out, model, processor)
    facts = {
        "plan": asdict(plan),
        "frames_each_process": len(frames),
        "shards": {kind: len(found) for kind, found in shards.items()},
        "validation": result,
        "minutes": round((time.time() - begun) / 60, 1),
    }
    log.write(json.dumps(facts) + "\n")
    log.close()
    sys.stdout.write(json.dumps(facts, indent=2) + "\n")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=WORK, help="folder with the shards")
    parser.add_argument("--out", type=Path, default=Path("policies/bundled/weights"), help="checkpoint folder to write")
    parser.add_argument("--start", type=Path, help="checkpoint to go on from")
    parser.add_argument("--steps", type=int, default=Plan.steps)
    parser.add_argument("--rate", type=float, default=Plan.rate)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    sigma = (5.0, 1.0) if args.start is None else (1.0, 1.0)
    plan = Plan(steps=args.steps, rate=args.rate, seed=args.seed, processes=args.processes, sigma=sigma)
    (args.work / "rendezvous").unlink(missing_ok=True)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    start_processes(_work, (plan, args.work, args.start, args.out), nprocs=plan.processes)  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
