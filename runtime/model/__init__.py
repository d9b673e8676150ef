"""Parts of a live model: blocks, batches, precision, loss, optimizer, operations."""

from .batches import (
    Batch,
    SampleCounter,
    first_samples,
    first_tensor,
    is_slice,
    map_tensors,
    split,
    tensors,
    tensors_in,
    to_device,
)
from .blocks import (
    EMBEDDING,
    HEAD,
    MODEL,
    REST,
    BlockList,
    ForeignBlock,
    Piece,
    bytes_per_parameter,
    find_block_lists,
    find_experts,
    repeated_blocks,
    vocabulary_size,
)
from .copies import SharedByCopies, stay_out_of_scripts
from .flops import device_of, flop_counter, tensor_bytes, weights_of
from .model_source import (
    LossFunction,
    ModelSource,
    TrainingParts,
    build_model,
    evaluation_mode,
    held_bytes,
    model_loss,
)
from .on_cpu import cuda_as_cpu, run_on_cpu
from .optimizers import MakeOptimizer, base_learning_rate, optimizer_maker
from .precision import DTYPES, LossScale, compute_in, precision_of
