"""Step 4: a trained model as a folder that mlx-lm loads."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from net import Net, load
from pieces import BOS_ID, END_ID, write
from safetensors.torch import save_file


def convert(net: Net, pieces: bytes, folder: Path) -> None:
    """Weights in bfloat16, tokenizer and configuration."""
    write(folder, pieces, net.shape.context)
    save_file(net.mlx_weights(), str(folder / "model.safetensors"), {"format": "mlx"})
    config = net.shape.config(BOS_ID, END_ID)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    generation = {"bos_token_id": BOS_ID, "eos_token_id": END_ID}
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--model", required=True, help="name of the checkpoint, such as target")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    args = parser.parse_args()
    convert(
        load(str(args.work / f"{args.model}.pt")),
        (args.work / "pieces.model").read_bytes(),
        args.out,
    )


if __name__ == "__main__":
    main()
