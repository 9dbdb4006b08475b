"""Small CSVs of published results, as the bench reads them, for tests."""

import csv
from pathlib import Path

THROUGHPUT = {
    "source_table": "nemo", "model": "Llama-3.1-8B", "params": "8030000000.0", "moe_active": "", "layers": "32.0",
    "hidden": "4096.0", "heads": "32.0", "kv_heads": "8.0", "vocab": "128256.0", "stage": "pretrain", "seq": "8192",
    "gpu": "H100-SXM5-80GB", "gpus": "8", "precision": "bf16", "global_batch": "128", "micro_batch": "1.0", "tp": "1",
    "pp": "1", "cp": "1", "ep": "1", "sharding": "FSDP", "act_ckpt": "tuned", "tokens_per_s_gpu": "11000.0",
    "model_tflops_gpu": "", "mfu_pct": "", "peak_mem_gib": "", "notes": "", "source": "a test",
}  # fmt: skip
ITERATION = {
    "source_table": "vtrain_single", "layers": "24", "hidden": "1024", "heads": "16", "seq": "1024", "vocab": "51200",
    "gpu": "A100-SXM4-80GB", "gpus": "8", "tp": "2", "dp": "2", "pp": "2", "interleave": "1", "seq_parallel": "False",
    "global_batch": "16", "micro_batch": "2", "precision": "fp16", "recompute": "full", "iter_ms": "400",
    "source": "a test",
}  # fmt: skip
FINETUNE = {
    "source_table": "litgpt_resource", "model": "Llama 2 7 B", "params": "6740000000.0", "layers": "32",
    "hidden": "4096", "heads": "32", "kv_heads": "32", "vocab": "32000", "method": "lora", "precision": "bf16-true",
    "gpu": "A100-SXM4-40GB", "gpus": "1", "seq": "1304.0", "micro_batch": "1", "peak_mem_gb": "21.3", "oom": "False",
    "notes": "", "source": "a test", "trainable": "4194304.0", "suspect": "", "act_ckpt": "False",
}  # fmt: skip


def write(folder: Path, name: str, *rows: dict[str, str]) -> Path:
    with (folder / f"{name}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return folder
