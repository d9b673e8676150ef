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
    alive,
    bytes_per_parameter,
    device_of,
    find_block_lists,
    find_experts,
    flop_counter,
    piece_names,
    repeated_blocks,
    shared_names,
    tensor_bytes,
    vocabulary_size,
    weights_of,
)
from .copies import SharedByCopies, stay_out_of_scripts
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
from .optimizers import (
    DTYPES,
    LossScale,
    MakeOptimizer,
    Schedule,
    base_learning_rate,
    build_schedule,
    compute_in,
    optimizer_maker,
    precision_of,
    rate_of,
)
