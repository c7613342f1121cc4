"""`sentence-experts demo`: the whole main job, command by command."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import Annotated

import typer

from sentence_experts.cli.console import results


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""

    def demo(
        out: Annotated[Path, typer.Option(help="folder for everything that the demo makes")] = Path("demo"),
        simulated: Annotated[
            bool,
            typer.Option("--simulated", help="use the simulated corpus even where real articles are there"),
        ] = False,
        steps: Annotated[int, typer.Option(min=1, help="training steps of each of the two models")] = 100,
        seed: Annotated[int, typer.Option(help="seed of the pairs and of training")] = 0,
    ) -> None:
        """Run the main job from articles to search, showing every command.

        Works on real articles if the folder SENTENCE_EXPERTS_DATA (or ../shared/data) has them, else on a
        small simulated corpus. Ends with the evaluation of TF-IDF, all-MiniLM-L6-v2, a dense model
        fine-tuned with domain tokens and a mixture of experts; three searches; and an HTML report. Some ten
        minutes on two cores. Run again after an interruption, it goes on where it was.

        Example: sentence-experts demo --out demo
        """
        from sentence_experts.corpus.simulate import simulate_corpus
        from sentence_experts.demo.plan import commands, data_folder, real_articles, simulated_articles

        began = time.monotonic()
        data = None if simulated else data_folder()
        if data is None:
            simulate_corpus(out / "simulated", seed)
        material = simulated_articles(out / "simulated") if data is None else real_articles(data)
        results.print(f"demo on {material.name}", style="bold", markup=False)
        for command in commands(material, out, steps, seed):
            results.print(f"\n$ sentence-experts {shlex.join(command)}", style="bold", markup=False)
            if status := app(command, standalone_mode=False):
                raise typer.Exit(status)
        minutes = (time.monotonic() - began) / 60
        results.print(f"\ndone in {minutes:.1f} minutes, on {material.name}", markup=False)
        results.print(f"report: {out / 'evaluation' / 'report.html'}", markup=False)

    app.command("demo")(demo)
