"""Train one model from the words you type, or a sweep of them with -m: `python train.py --help` shows how."""

import sys

from torchlite import stopping

with stopping.loading():
    import hydra
    from omegaconf import DictConfig

    from torchlite import command_line, config


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(cfg: DictConfig) -> float | None:
    composed = config.composed(cfg)
    if composed.sweep_directory is not None:  # a launcher of Hydra's own composed it anew
        from torchlite.sweep.jobs import frozen

        composed = frozen(composed)
    with stopping.loading():
        from torchlite import run  # brings torch, which no refused word and no --help has to wait for

    return run.run(composed)


if __name__ == "__main__":
    sys.exit(command_line.command(main))
