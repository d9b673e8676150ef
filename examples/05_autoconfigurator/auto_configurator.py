"""The interface of NeMo 2.0's Auto Configurator, on this machine: candidates, runs, both tables.

    python examples/05_autoconfigurator/auto_configurator.py --logs auto_configurator_results

Needs transformers. On a cluster, train the configurations of ``generate_configs()`` there;
``get_results()`` then reads TensorBoard's files from their folders below ``path_to_logs``.
"""

from __future__ import annotations

import argparse

from autoconf_launch import AutoConfigurator

SMALL_LLAMA = {
    "class": "LlamaModel",
    "num_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "ffn_hidden_size": 176,
}


def main() -> None:
    """Search the micro-batch of a small Llama and print the fastest configurations."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--logs", default="auto_configurator_results")
    parser.add_argument("--gpus", type=int, default=1, help="GPUs of this machine, or CPU ranks")
    flags = parser.parse_args()
    configurator = AutoConfigurator(
        path_to_logs=flags.logs,
        model=SMALL_LLAMA,
        num_nodes=1,
        gpus_per_node=flags.gpus,
        seq_length=64,
        vocab_size=512,
        global_batch_size=8,
        tensor_parallel_sizes=[1],
        pipeline_parallel_sizes=[1],
        micro_batch_sizes=[1, 2, 8],
        max_steps_per_run=10,
        max_minutes_per_run=5,
        num_tokens_in_b=0.1,
    )
    for note in configurator.notes:
        print(f"Note: {note}")
    configurator.run()
    results = configurator.get_results()
    print(results.text)
    print(f"Tables: {results.summary} and {results.failed}")


if __name__ == "__main__":
    main()
