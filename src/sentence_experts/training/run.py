"""`train`: one run, of a model on training data."""

from __future__ import annotations

import logging
import math
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer
from transformers import PrinterCallback, ProgressCallback, TrainerState, set_seed
from transformers.integrations import TensorBoardCallback, WandbCallback  # type: ignore[attr-defined]

from sentence_experts.compat.messages import hide_messages
from sentence_experts.compat.sentence_transformers import (
    check_one_way,
    leaves_prompts_out,
    set_tokenizer_limits,
    tokenizer_limits,
)
from sentence_experts.config import with_settings
from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.errors import UsageError
from sentence_experts.models.architectures.lora import add_lora, merge_lora, remove_unmerged_lora
from sentence_experts.models.files.fingerprint import fingerprint_with_settings
from sentence_experts.models.loading import load
from sentence_experts.models.sources import RUN_FILE, notes_of, set_notes
from sentence_experts.progress import progress
from sentence_experts.storage import (
    Output,
    check_apart,
    output,
    read_json,
    replacing_folder,
    sha256_settings,
    temporary_folder,
    write_json,
    write_text,
)
from sentence_experts.training import processes
from sentence_experts.training.batches import RouteBatches
from sentence_experts.training.config import TrainConfig
from sentence_experts.training.data import TrainingPart, find_own_routes, open_data
from sentence_experts.training.losses import ContrastiveLoss
from sentence_experts.training.result import TrainResult, make_model_card
from sentence_experts.training.trainable import (
    as_float32,
    check_settings,
    find_routed_model,
    find_routes,
    freeze_others,
    make_router_loss,
)
from sentence_experts.training.trainer import (
    BEST_BY,
    CHECKPOINTS,
    RunCallback,
    Trainer,
    copy_weights,
    find_last_checkpoint,
    is_over,
    make_training_arguments,
    take_best,
)
from sentence_experts.training.training_set import PairCollator, TrainingSet
from sentence_experts.training.validation import TITLES, Validator

logger = logging.getLogger(__name__)

MODEL, CONFIG, LOGS = "model", "config.yaml", "logs"
NO_MATTER = frozenset({"tensorboard", "wandb", "keep_checkpoints"})  # settings that change no weight
RESULTS = (MODEL, CONFIG, RUN_FILE)


@with_settings(TrainConfig)
def train(
    model: str | Path | SentenceTransformer,
    data: Any,
    config: TrainConfig | None = None,
    out: Path | str | None = None,
    overwrite: bool = False,
    **settings: Any,
) -> TrainResult:
    """Train a model, in place if it is in memory; return it with its validation figures.

    Learning is contrastive: the other positives of a pair's batch are its negatives. The best model is the
    one with the highest mean of the routes' validation figures (ROC-AUC for domains, nDCG@10 for tasks); if
    none is better than the model before training, that one is kept. With `keep="last"` it is the model after
    the last step. The test splits are never read. Several processes (`torchrun`) train together; the first
    one writes.

    Args:
        model: a folder, a hub id or "minilm"; or a model in memory, which is trained in place.
        data: a pairs folder, a tasks folder, a table with columns anchor and positive (`open_data`), or a
            list of several of them.
        config: settings; `settings` replace single ones, such as `batch_size=64`.
        out: folder for the run: model/ (the kept one), config.yaml, run.json, checkpoints/. Without it
            the model stays in memory. An interrupted run of the same settings continues from its last
            checkpoint.
        overwrite: start over, replacing another run in `out`.

    Raises:
        UsageError: a setting has no effect on this model or data, or `out` holds something else.
        InputError: the model cannot be loaded, or there are too few pairs.
        RouteError: the model has routes, but not the data's.
        BadNumbersError: the loss became NaN or infinite.
        OtherProcessEndedError: another of several processes has ended.

    Example:
        >>> result = train("model", "pairs", max_steps=2, batch_size=4)
        >>> result.steps
        2
    """
    chosen = TrainConfig.of(config, **settings)
    if out is None and processes.count() > 1:
        raise UsageError("`out`: several processes need a folder")
    check_apart(out, overwrite, model, data)
    with ExitStack() as stack:
        stack.enter_context(processes.end_together())
        folder = Path(out) if out is not None else Path(stack.enter_context(temporary_folder())) / "run"
        names = (*RESULTS, CHECKPOINTS, *([LOGS] if chosen.tensorboard else []))  # else the user's
        place = stack.enter_context(
            output(folder, "training run", names=names, grows=True, overwrite=overwrite, shared=True)
        )
        run = Run(model, open_data(data), chosen)
        undecayed = stack.enter_context(freeze_others(run.model, chosen))
        stack.enter_context(remove_unmerged_lora(run.model))
        stack.callback(setattr, run.model, "max_seq_length", run.max_length)
        result = run.run(place, undecayed)
    return TrainResult.of(run.model, result, None if out is None else folder)


class Run:
    """A run whose settings suit its model and data.

    `fingerprint`, `max_length` and the tokenizer's `limits` are those of the model before training: one that
    learned nothing is saved to equal bytes.
    """

    def __init__(
        self, source: str | Path | SentenceTransformer, parts: Sequence[TrainingPart], config: TrainConfig
    ) -> None:
        """Load the model, and check what can be wrong with the settings before anything is written."""
        processes.log_in_first_only()
        set_seed(config.seed)
        model = source if isinstance(source, SentenceTransformer) else load(source)
        if hasattr(model, "check_alpha"):
            name = getattr(model, "settings", {})["model"]
            raise UsageError(f"an embedder cannot be trained, only its language model: {name}")
        model = model if model is source else as_float32(model)
        check_one_way(model)
        if (routed := find_routed_model(model)) is not None and routed.residency.idle:
            raise UsageError("only some experts are loaded: load all, and train one with `only_expert`")
        self.fingerprint = fingerprint_with_settings(model)
        self.model, self.parts, self.config = model, parts, config
        check_settings(model, config)
        self.routes = find_routes(parts, config, model)
        if leaves_prompts_out(model) and any(any(route.prompts) for route in self.routes):
            raise UsageError(
                "the model's pooling leaves prompts out (include_prompt=False), and training would include "
                "them: call model.set_pooling_include_prompt(True) first"
            )
        if len(self.routes) < sum(len(part.routes) for part in parts):
            logger.info(f"trained on these routes' data only: {', '.join(each.name for each in self.routes)}")
        self.max_length, self.limits = model.max_seq_length, tokenizer_limits(model)

    def run(self, place: Output, undecayed: Sequence[str]) -> dict[str, Any]:
        """Train until the model is the one to keep; return what run.json holds.

        Args:
            place: the folder of the run.
            undecayed: names of further weights without weight decay.

        Raises:
            InputError: there are too few pairs.
        """
        config, model = self.config, self.model
        training = TrainingSet.of(self.parts, self.routes, config)
        batches = RouteBatches(
            training, config.batch_size, processes.count(), seed=config.seed, swap=config.swap
        )
        batches.steps = config.max_steps or max(1, math.floor(batches.groups_in_a_pass() * config.epochs))
        validator = Validator.of(self.parts, self.routes, config, self.max_length)
        arguments = make_training_arguments(place.path, config, batches.steps, model, validator.has_figure)
        out, checkpoint, identity = processes.once(lambda: self._begin(place))
        arguments.output_dir = str(out / CHECKPOINTS)  # elsewhere if it is to replace another run
        if identity is None:
            result: dict[str, Any] = read_json(out / RUN_FILE)
            self._load_finished(out / MODEL)
            self._remove_checkpoints(place)  # of a run that was killed before it did
            return result
        validator.warn_of_unmeasured()
        if idle := batches.list_idle():
            logger.warning(
                f"no batch of {', '.join(idle)} in {batches.steps:,} steps: not trained; make more steps"
            )
        if config.lora_rank is not None:
            add_lora(model, config.lora_rank)
        self._prepare_model()
        loss = ContrastiveLoss(
            model,
            [route.temperature for route in self.routes],
            config.loss,
            cache_mini_batch=config.cache_mini_batch,
            known=training.known if config.mask_known else None,
            router=make_router_loss(model, config),
            experts=[route.experts for route in self.routes],
        )
        trainer = Trainer(
            model=model,
            args=arguments,
            train_dataset=training.dataset(),
            loss=loss,
            evaluator=validator if validator.has_figure else None,
            data_collator=PairCollator(preprocess_fn=model.preprocess),
        )
        trainer.batches = batches
        trainer.undecayed = undecayed
        trainer.identity = identity
        trainer.use_one_cycle = config.scheduler == "one_cycle"
        before = copy_weights(trainer) if arguments.metric_for_best_model is not None else None
        _train(trainer, out, config, [route.name for route in self.routes], checkpoint)
        take_best(trainer, before)
        model.max_seq_length = self.max_length
        if config.lora_rank is not None:
            merge_lora(model)
        written: dict[str, Any] = processes.once(lambda: self._write(trainer, training, place, idle))
        self._remove_checkpoints(place)  # all processes have read the best one by now
        return written

    def _begin(self, place: Output) -> tuple[Path, str | None, str | None]:
        """Return the folder, the checkpoint to continue from, and the hash of all that decides the result.

        There is no hash if the run is finished.
        """
        decisive = self.identity(NO_MATTER)
        if place.begin(decisive) == "finished":
            return place.path, None, None
        identity = sha256_settings(decisive)
        return place.path, find_last_checkpoint(place.path / CHECKPOINTS, identity), identity

    def _remove_checkpoints(self, place: Output) -> None:
        """Remove the checkpoints, unless this run keeps them, or the finished one kept them."""
        if not (self.config.keep_checkpoints or place.result.get("keeps_checkpoints")):
            processes.once(lambda: shutil.rmtree(place.path / CHECKPOINTS, ignore_errors=True))

    def identity(self, without: frozenset[str] = frozenset({"keep_checkpoints"})) -> dict[str, Any]:
        """Return all that decides the result: model, data, settings and number of processes."""
        return {
            "model": self.fingerprint,
            "data": [part.fingerprint() for part in self.parts],
            "config": self.config.model_dump(mode="json", exclude=set(without)),
            "processes": processes.count(),
        }

    def _prepare_model(self) -> None:
        """Give the model the prompts and the maximum length that it is trained with."""
        model = self.model
        for route in self.routes:
            # A model without routes is used as it was trained.
            for name, prompt in route.instructions.items() if any(route.prompts) else ():
                before = model.prompts.get(name)
                if before and before != prompt:
                    logger.info(f"the model's prompt {name!r} was {before!r}; it is now {prompt!r}")
                model.prompts[name] = prompt
        model.max_seq_length = self.config.max_length or model.max_seq_length
        encoder = BatchEncoder(model)
        for prompt in (prompt for route in self.routes for prompt in route.prompts):
            encoder.check_room(prompt)

    def _load_finished(self, folder: Path) -> None:
        best = load(folder, device="cpu")
        self.model.load_state_dict(best.state_dict())
        self.model.prompts = best.prompts
        set_notes(self.model, notes_of(self.model) | notes_of(best))

    def _write(
        self, trainer: Trainer, training: TrainingSet, place: Output, idle: Sequence[str]
    ) -> dict[str, Any]:
        """Write the best model with its card, and the run's figures."""
        state, out = trainer.state, place.path
        history = [
            {name: value for name, value in entry.items() if name == "step" or "eval_validation_" in name}
            for entry in state.log_history
            if BEST_BY in entry
        ]
        chosen = state.best_global_step if trainer.args.metric_for_best_model else state.global_step
        result = {
            **self.identity(),
            "learned": trainer.loss.learned(),
            "steps": state.global_step,
            "kept_step": chosen,
            "validation": next((each[BEST_BY] for each in history if each["step"] == chosen), None),
            "start_validation": history[0][BEST_BY] if history else None,
            "history": history,
            "losses": [[entry["step"], entry["loss"]] for entry in state.log_history if "loss" in entry],
        }
        set_notes(self.model, self._notes(untrained=chosen == 0))
        set_tokenizer_limits(self.model, self.limits)
        with replacing_folder(out / MODEL) as folder:
            self.model.save_pretrained(str(folder), create_model_card=False)
            write_text(folder / "README.md", make_model_card(self.model, self.parts, training, result, idle))
        self.config.write(out / CONFIG)
        write_json(out / RUN_FILE, result)
        place.result["keeps_checkpoints"] = self.config.keep_checkpoints
        place.finish(*RESULTS)
        return result

    def _notes(self, untrained: bool) -> dict[str, Any]:
        """Return the notes for the model's card (`sources.notes_of`)."""
        if untrained:
            return {**notes_of(self.model), "untrained": True}
        units = {part.unit for part in self.parts if part.unit and find_own_routes(part, self.routes)}
        base = {name: value for name, value in notes_of(self.model).items() if name == "base"}
        return base | ({"unit": units.pop()} if len(units) == 1 else {})


def _train(
    trainer: Trainer, out: Path, config: TrainConfig, routes: Sequence[str], checkpoint: str | None
) -> None:
    """Train from the start, or from a checkpoint, to the last step or until the figure no longer rises."""
    shown = {BEST_BY: "mean"} if len(routes) > 1 else {}
    shown |= {
        f"eval_validation_{name}/{metric}": f"{name} {title}"
        for name in routes
        for metric, title in TITLES.items()
    }
    for stock in (ProgressCallback, PrinterCallback):
        trainer.remove_callback(stock)
    if checkpoint is not None:
        trainer.load_loss(checkpoint)
        state = TrainerState.load_from_json(str(Path(checkpoint) / "trainer_state.json"))
        # The run may have been killed after its last step.
        if trainer.args.metric_for_best_model is not None and is_over(state, config.patience):
            trainer.state = state
            return
    with progress(f"train {out.name}", trainer.args.max_steps) as advance:
        if config.tensorboard and processes.is_first():
            from torch.utils.tensorboard import SummaryWriter

            trainer.add_callback(TensorBoardCallback(SummaryWriter(out / LOGS)))
        if config.wandb:
            trainer.add_callback(WandbCallback())
        trainer.add_callback(RunCallback(advance, config.patience, shown, trainer.identity))
        # Within the run: measured before it, a model of several processes would train without the others.
        trainer.args.eval_on_start = checkpoint is None and trainer.evaluator is not None
        hide_messages()
        trainer.train(resume_from_checkpoint=checkpoint)
